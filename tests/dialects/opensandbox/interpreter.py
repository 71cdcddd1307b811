"""What a program that uses OpenSandbox's code interpreter does."""

import asyncio
from datetime import timedelta

from code_interpreter import CodeInterpreter, CodeInterpreterSync
from code_interpreter.models.code import SupportedLanguage
from opensandbox import Sandbox, SandboxSync
from opensandbox.config import ConnectionConfig
from opensandbox.config.connection_sync import ConnectionConfigSync

IMAGE = "opensandbox/code-interpreter:v1.0.2"
ENTRYPOINT = ["/opt/opensandbox/code-interpreter.sh"]


def text(messages):
    return [message.text for message in messages]


async def with_async():
    sandbox = await Sandbox.create(
        IMAGE, entrypoint=ENTRYPOINT, timeout=timedelta(minutes=5), connection_config=ConnectionConfig()
    )
    assert (await sandbox.get_info()).image.image == IMAGE
    interpreter = await CodeInterpreter.create(sandbox)
    context = await interpreter.codes.create_context(SupportedLanguage.PYTHON)
    ran = await interpreter.codes.run("x = 2\nprint('p')\nx + 2", context=context)
    assert text(ran.logs.stdout) == ["p\n"] and ran.result[0].text == "4" and ran.execution_count == 1, ran
    ran = await interpreter.codes.run("x * 10", context=context)
    assert ran.result[0].text == "20" and ran.execution_count == 2, ran
    ran = await interpreter.codes.run("1/0", context=context)
    assert (ran.error.name, ran.error.value) == ("ZeroDivisionError", "division by zero"), ran
    other = await interpreter.codes.create_context(SupportedLanguage.PYTHON)
    ran = await interpreter.codes.run("x", context=other)
    assert ran.error.name == "NameError", ran
    ran = await interpreter.codes.run("3 + 4", language=SupportedLanguage.PYTHON)
    assert ran.result[0].text == "7", ran
    ran = await interpreter.codes.run("echo from bash", language=SupportedLanguage.BASH)
    assert text(ran.logs.stdout) == ["from bash\n"], ran
    for count in (1, 2):
        ran = await interpreter.codes.run("1", language=SupportedLanguage.JAVASCRIPT)
        assert ran.execution_count == count, ran
    assert [line.text for line in (await sandbox.commands.run("python -c 'print(3)'")).logs.stdout] == ["3"]
    listed = await interpreter.codes.list_contexts(SupportedLanguage.PYTHON)
    assert {context.id, other.id} <= {one.id for one in listed}, listed
    await interpreter.codes.delete_context(other.id)
    await interpreter.codes.delete_contexts(SupportedLanguage.PYTHON)
    assert await interpreter.codes.list_contexts(SupportedLanguage.PYTHON) == []
    await sandbox.kill()
    await sandbox.close()


def without_async():
    sandbox = SandboxSync.create(IMAGE, entrypoint=ENTRYPOINT, connection_config=ConnectionConfigSync())
    interpreter = CodeInterpreterSync.create(sandbox)
    assert interpreter.is_healthy()
    ran = interpreter.codes.run("print('sync')", language=SupportedLanguage.PYTHON)
    assert text(ran.logs.stdout) == ["sync\n"], ran
    sandbox.kill()
    sandbox.close()


asyncio.run(with_async())
without_async()
print("ok: code interpreter")
