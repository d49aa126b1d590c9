"""Consistency rules that were added: each module of this package is one, taken up by itself.

A module has ``parse(spec)``, which returns its rule (:class:`plink.model.consistency.Rule`), or None where the text is
not for it. See docs/recipes.md.
"""
