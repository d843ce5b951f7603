"""Files of other systems, and what is read from them.

`systems/NAME/tree` is a folder with the files of a system. `systems/NAME/expected.json` states what is read there, by
the rules of docs/reference/import-formats.md:

- `memories`, in order of path, then of place in the file. `key` is the path, and after `#` the part of the file.
  `project` is true if the memory belongs to a project; `project_id` names a project other than the folder's. `date` is
  null if the source has none. `begins` is the start of the content, `transformed` names the changes in any order, and
  `secrets` are texts that no file and no preview may show. `kind` is there if it is not `core`.
- `left_out`: files that look like memories and are not, with the reasons.
- `no_memory`: files that are in neither list.
"""
