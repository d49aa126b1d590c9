"""Pictures of a network: names and arrays in; SVG, PNG, a page or a terminal's text out.

Nothing here measures or decides, and Matplotlib is imported where something is drawn.
"""
