"""The tool `memory`: Anthropic's six commands, with its texts, over the memory store `memories`."""

from typing import Any

import pytest

from audit.models import AuditEntry
from memory.models import Agent, Memory, Store
from memory.search import reading
from memory.search.selection import Filters
from memory.silo.silo import Silo
from memory.writing import operations, stores
from refinement.mcp import memory_tool
from tests import steps
from tests.conftest import House
from tests.mcp.calling import Mcp
from tests.steps import ME, fresh, says

NOTES, TEXT = "/memories/notes.txt", "one\ntwo\nthree\nfour\nfive\nsix\n"


def said(client: Mcp, command: str, *, is_error: bool = False, **arguments: Any) -> str:
    result = client.result("tools/call", name="memory", arguments={"command": command, **arguments})
    assert (result["isError"], "structuredContent" in result) == (is_error, False), result
    return str(result["content"][0]["text"])


def failed(client: Mcp, command: str, **arguments: Any) -> str:
    return said(client, command, is_error=True, **arguments)


@pytest.fixture
def notes(client: Mcp) -> Mcp:
    said(client, "create", path=NOTES, file_text=TEXT)
    return client


def test_a_file_is_created_once(each: Mcp, ada: Agent) -> None:
    assert said(each, "create", path=NOTES, file_text="tea") == f"File created successfully at: {NOTES}"
    for path in (NOTES, f"{NOTES}/below", "/memories", "/memories/"):
        assert failed(each, "create", path=path, file_text="x") == f"File {path} already exists"
    assert (says(ada, 1).content, says(ada, 1).path) == ("tea", "/notes.txt")
    assert Memory.objects.get().beneath_at is not None
    assert fresh(ada).core_tokens == 0


@pytest.mark.parametrize("command", ["view", "delete", "rename", "create", "str_replace", "insert"])
@pytest.mark.parametrize("path", ["/a" * 21, "/" + "a" * 1_025, "/a" * 100_000])
def test_a_path_that_no_file_can_have_is_refused_at_once(
    client: Mcp, command: str, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Silo, "place", None)  # its time grows with the square of the folders
    names = {"old_path": f"/memories{path}", "new_path": "/memories/b"} if command == "rename" else {}
    more: dict[str, Any] = {"create": {"file_text": ""}, "str_replace": {"old_str": "a"}}.get(command, {})
    more |= {"insert_line": 0, "insert_text": "a"} if command == "insert" else {}
    assert "must have at most" in failed(client, command, **names or {"path": f"/memories{path}"}, **more)


def test_a_message_names_only_some_of_many_places(client: Mcp) -> None:
    said(client, "create", path=NOTES, file_text="a\n" * 30)
    message = failed(client, "str_replace", path=NOTES, old_str="a")
    assert "in lines: 1, 2, 3" in message
    assert "19, 20, and others. Please" in message


def test_a_failed_first_file_leaves_no_store(client: Mcp) -> None:
    assert "must have at most" in failed(client, "create", path=f"/memories{'/x' * 21}", file_text="x")
    assert not Store.objects.exists()


def test_view_shows_two_levels_without_hidden_files(client: Mcp) -> None:
    head = "Here're the files and directories up to 2 levels deep in {}, excluding hidden items:\n"
    assert said(client, "view", path="/memories") == head.format("/memories") + "0B\t/memories"
    sizes = {"a.txt": 10, "b/c": 1536, "b/d/e": 4096, "b/.hidden": 1, ".hid/f": 1, "empty": 0}
    for name, size in sizes.items():
        said(client, "create", path=f"/memories/{name}", file_text="x" * size)
    shown = "5.5K\t/memories|10B\t/memories/a.txt|5.5K\t/memories/b/|1.5K\t/memories/b/c|4K\t/memories/b/d/"
    shown += "|0B\t/memories/empty"
    assert said(client, "view", path="/memories") == head.format("/memories") + shown.replace("|", "\n")
    assert said(client, "view", path="/memories/b/d").endswith("\n4K\t/memories/b/d\n4K\t/memories/b/d/e")


def test_view_numbers_the_lines_of_a_file(notes: Mcp) -> None:
    head = f"Here's the content of {NOTES} with line numbers:\n"
    numbered = [f"     {n}\t{line}" for n, line in enumerate(TEXT.split("\n"), 1)]
    assert said(notes, "view", path=NOTES) == head + "\n".join(numbered)
    assert said(notes, "view", path=NOTES, view_range=[2, 3]) == head + "\n".join(numbered[1:3])
    assert said(notes, "view", path=NOTES, view_range=[5, -1]) == head + "\n".join(numbered[4:])
    missing = "The path /memories/none does not exist. Please provide a valid path."
    assert failed(notes, "view", path="/memories/none") == missing


def test_a_file_with_a_million_lines_is_not_shown(notes: Mcp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_tool, "MAX_LINES", 6)
    assert failed(notes, "view", path=NOTES) == f"File {NOTES} exceeds maximum line limit of 6 lines."


def test_str_replace_shows_the_lines_around(notes: Mcp, ada: Agent) -> None:
    shown = "     2\ttwo\n     3\tthree\n     4\tIV\n     5\tfive\n     6\tsix"
    head = "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
    assert said(notes, "str_replace", path=NOTES, old_str="four", new_str="IV") == head + shown
    assert says(ada, 1).content == TEXT.replace("four", "IV")


def test_str_replace_needs_one_occurrence(notes: Mcp) -> None:
    missing = f"No replacement was performed, old_str `ten` did not appear verbatim in {NOTES}."
    assert failed(notes, "str_replace", path=NOTES, old_str="ten", new_str="x") == missing
    several = "Multiple occurrences of old_str `e\n` in lines: 1, 3, 5. Please ensure it is unique"
    assert failed(notes, "str_replace", path=NOTES, old_str="e\n", new_str="x").endswith(several)
    said(notes, "create", path="/memories/b/c", file_text="x")
    for path in ("/memories/b", "/memories"):
        assert failed(notes, "str_replace", path=path, old_str="e", new_str="x") == f"The path {path} is not a file."


def test_insert_adds_lines(notes: Mcp, ada: Agent) -> None:
    for line, text in ((0, "zero\n"), (7, "seven")):
        assert said(notes, "insert", path=NOTES, insert_line=line, insert_text=text) == (
            f"The file {NOTES} has been edited."
        )
    assert says(ada, 1).content == f"zero\n{TEXT}seven\n"
    wrong = "Invalid `insert_line` parameter: 9. It should be within the range [0, 8]."
    assert failed(notes, "insert", path=NOTES, insert_line=9, insert_text="x") == wrong


def test_carriage_returns_are_kept(client: Mcp, ada: Agent) -> None:
    said(client, "create", path=NOTES, file_text="a\r\nb\r\n")
    said(client, "insert", path=NOTES, insert_line=1, insert_text="c\r")
    said(client, "str_replace", path=NOTES, old_str="b", new_str="B")
    assert says(ada, 1).content == "a\r\nc\r\nB\r\n"


def test_delete_takes_a_file_or_a_folder_in_one_edit(notes: Mcp, ada: Agent) -> None:
    for name in ("b/c", "b/d", "bb"):
        said(notes, "create", path=f"/memories/{name}", file_text="x")
    before = AuditEntry.objects.filter(agent_id=ada.pk).count()
    assert said(notes, "delete", path="/memories/b/") == "Successfully deleted /memories/b/"
    assert AuditEntry.objects.filter(agent_id=ada.pk).count() == before + 1
    assert {says(ada, number).path for number in (1, 4)} == {"/notes.txt", "/bb"}
    assert Memory.objects.of(ada).kept().count() == 2
    assert failed(notes, "delete", path="/memories/b") == "The path /memories/b does not exist"
    assert failed(notes, "delete", path="/memories") == "Cannot delete the /memories directory itself"


def test_rename_moves_a_file_or_a_folder_in_one_edit(notes: Mcp, ada: Agent) -> None:
    for name in ("b/c", "b/d/e"):
        said(notes, "create", path=f"/memories/{name}", file_text="x")
    before = AuditEntry.objects.filter(agent_id=ada.pk).count()
    moved = said(notes, "rename", old_path="/memories/b", new_path="/memories/a/b")
    assert moved == "Successfully renamed /memories/b to /memories/a/b"
    assert AuditEntry.objects.filter(agent_id=ada.pk).count() == before + 1
    assert [says(ada, number).path for number in (1, 2, 3)] == ["/notes.txt", "/a/b/c", "/a/b/d/e"]
    for new in (NOTES, f"{NOTES}/x", "/memories/a", "/memories"):
        taken = f"The destination {new} already exists"
        assert failed(notes, "rename", old_path="/memories/a/b/c", new_path=new) == taken
    assert failed(notes, "rename", old_path="/memories/x", new_path="/memories/y") == (
        "The path /memories/x does not exist"
    )
    root = "Cannot rename the /memories directory itself"
    assert failed(notes, "rename", old_path="/memories", new_path="/memories/y") == root


def test_a_large_folder_is_not_changed_at_once(notes: Mcp, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b/c", "b/d"):
        said(notes, "create", path=f"/memories/{name}", file_text="x")
    monkeypatch.setattr(stores, "MOST_AT_ONCE", 1)
    large = "The folder /memories/b is too large for one command. Delete or rename its files one by one."
    assert failed(notes, "delete", path="/memories/b") == large
    assert failed(notes, "rename", old_path="/memories/b", new_path="/memories/e") == large
    said(notes, "delete", path="/memories/b/c")
    said(notes, "delete", path="/memories/b")


def test_paths_stay_inside(notes: Mcp) -> None:
    for path in ("/", "notes.txt", "/memoriesx", "/etc/passwd"):
        assert failed(notes, "view", path=path) == f"Path must start with /memories, got: {path}"
    outside = "/memories/a/../../etc"
    assert failed(notes, "view", path=outside) == f"Path {outside} would escape /memories directory"
    assert said(notes, "view", path="/memories/a/../notes.txt").endswith("     7\t")


def test_wrong_arguments_are_named(client: Mcp) -> None:
    assert client.refused("memory", command="drop")["attr"] == "command"
    assert client.refused("memory", command="create", path=NOTES)["attr"] == "file_text"
    assert "unknown" in client.refused("memory", command="delete", path=NOTES, extra="x")["detail"]
    assert client.refused("memory", command="view", path=NOTES, view_range=[1])["attr"] == "view_range"


def test_rules_and_constitutional_memories_count(notes: Mcp, ada: Agent) -> None:
    operations.promote(fresh(ada), 1, ME)
    steps.protect(ada, 1)
    assert notes.refused("memory", command="delete", path=NOTES)["code"] == "constitutional"
    assert notes.refused("memory", command="str_replace", path=NOTES, old_str="one", new_str="x")["code"] == (
        "constitutional"
    )


def test_the_files_are_those_of_the_store_and_of_search(notes: Mcp, house: House, ada: Agent) -> None:
    [store] = Store.objects.filter(agent_id=ada.pk)
    stores.add(fresh(ada), store.number, "/tea", "Ann likes tea", ME)
    assert said(notes, "view", path="/memories/tea").endswith("     1\tAnn likes tea")
    [found] = reading.search(fresh(ada), "four", filters=Filters())
    assert found.memory.number == 1
    assert said(Mcp(house.bob_key), "view", path="/memories").endswith("\n0B\t/memories")
    stores.archive(fresh(ada), store.number, ME)
    assert said(notes, "view", path="/memories").endswith("\n0B\t/memories")
