"""What other systems leave in a folder, laid out as they lay it out, and what is to be made of it.

`systems/NAME/tree` is a folder as it is found; `systems/NAME/expected.json` says what is read there, by the rules of
docs/reference/import-formats.md:

- `memories`, in order of path, then of place in it. `key` is the path, or the path and `#` with what tells the part
  of the file. `project` is true where the memory is a project's; `project_id` names one that is not the folder's own.
  `date` is null where the source has none. `begins` is how the content begins, `transformed` what was done to it (in no
  order), `secrets` what no file and no preview may show; `kind` is there where it matters.
- `left_out`: what looks like a memory and is none, and why.
- `no_memory`: files of the tree that are in neither list, for nobody would take them for a memory.

`test_odd.py` makes what git cannot hold.
"""
