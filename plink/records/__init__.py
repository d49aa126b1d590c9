"""What plink keeps on disk between commands: the workspace ``./.plink``, runs, their output and their logs."""
