import pytest

from audit.trail import Actor
from memory import errors
from memory.search import stores as reading
from memory.time_machine.replay import problems
from memory.time_machine.rollback import roll_back
from memory.time_machine.selection import What
from memory.writing import operations, stores

ME = Actor.agent("abcdefghijkl")


@pytest.mark.django_db
def test_one(ada):
    s = stores.create(ada, stores.About("n", "d", {"a": "b"}), ME)
    ada.refresh_from_db()
    e = stores.add(ada, s.number, "/a/b.md", "hello", ME)
    ada.refresh_from_db()
    with pytest.raises(errors.PathTaken):
        stores.add(ada, s.number, "/a/b.md", "x", ME)
    with pytest.raises(errors.PathTaken):
        stores.add(ada, s.number, "/a", "x", ME)
    with pytest.raises(errors.PathTaken):
        stores.add(ada, s.number, "/a/b.md/c", "x", ME)
    stores.add(ada, s.number, "/a/c.md", "", ME)
    stores.add(ada, s.number, "/z.md", "zz", ME)
    ada.refresh_from_db()
    assert ada.beneath_count == 3
    m = stores.revise(ada, s.number, e.memory.number, ME, content="hello2", path="/q/b.md")
    ada.refresh_from_db()
    for c in reading.children(ada, s.number, "/", after_place=b"", limit=10):
        print(c.is_folder, reading.items(ada, [c.memory], is_full=True)[0].label.path)
    for v in reading.opened(ada, reading.versions(ada, s.number, {}, before=None, limit=20), is_full=True):
        print(v.row, v.label, v.content)
    stores.discard(ada, s.number, m.number, ME)
    ada.refresh_from_db()
    last = ada.audit_seq
    stores.add(ada, s.number, "/q/b.md", "other", ME)
    ada.refresh_from_db()
    with pytest.raises(errors.PathTaken):
        operations.restore(ada, [m.number], ME)
    with pytest.raises(errors.Conflict):
        roll_back(ada, What("entry", last), ME)
    roll_back(ada, What("entry", last), ME, force=True)
    ada.refresh_from_db()
    print(
        [
            i.label.path
            for i in reading.items(ada, reading.page(ada, s.number, "/q/", after_number=0, limit=9), is_full=False)
        ]
    )
    stores.delete(ada, s.number, ME)
    ada.refresh_from_db()
    last = ada.audit_seq
    with pytest.raises(errors.NotFound):
        stores.find(ada, s.number)
    roll_back(ada, What("entry", last), ME)
    stores.find(ada, s.number)
    ada.refresh_from_db()
    assert list(problems(ada)) == []
