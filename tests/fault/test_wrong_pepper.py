"""The pepper is not the one with which keys, links and second factors were made."""

import shutil

from tests.commands.calling import Installation, failed
from tests.commands.serving import start_serving


def test_no_process_starts_with_a_wrong_pepper(service: Installation) -> None:
    assert service.manage("create_agent", "acme/ada", "--model", "builtin/dedupe").code == 0
    file = service.folder / "keys" / "pepper"
    right = file.read_text()
    shutil.copy(service.folder / "keys" / "audit", file)
    create = ("create_agent", "acme/bob", "--model", "builtin/dedupe")
    for command in (create, ("worker",)):
        assert "PEPPER_KEY" in failed(service.manage(*command), 2, "made with the pepper", "Restore it")
    serving = start_serving(service)
    assert serving.process.wait(60) in (1, 2)
    assert "not in the keyring" in serving.log.read_text()
    file.write_text(file.read_text() + right)
    assert service.manage(*create).code == 0, "the new pepper is added before the old one"
    file.write_text(right)
    failed(service.manage(*create), 2, "made with the pepper")
