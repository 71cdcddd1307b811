"""Tells a story to the daemon's SSH server through paramiko and asyncssh: commands, terminals, files, ports."""

import asyncio
import sys

import asyncssh
import paramiko

port, key_file, secret = int(sys.argv[1]), sys.argv[2], sys.argv[3]


def with_paramiko():
    client = paramiko.SSHClient()
    client.set_missing_host_key_policy(paramiko.AutoAddPolicy())
    client.connect("127.0.0.1", port, "lab", password=secret, allow_agent=False, look_for_keys=False)
    stdin, stdout, stderr = client.exec_command("cat; echo problem >&2; exit 5")
    stdin.write("input")
    stdin.channel.shutdown_write()
    assert (stdout.read(), stderr.read()) == (b"input", b"problem\n")
    assert stdout.channel.recv_exit_status() == 5
    _, stdout, _ = client.exec_command("stty size", get_pty=True)
    assert stdout.read() == b"24 80\r\n"
    sftp = client.open_sftp()
    data = bytes(range(256)) * 20_000
    with sftp.open("/tmp/paramiko", "wb") as file:
        file.set_pipelined(True)
        file.write(data)
    with sftp.open("/tmp/paramiko", "rb") as file:
        file.prefetch()
        assert file.read() == data
        file.seek(1000)
        assert file.read(5) == data[1000:1005]
    assert sftp.stat("/tmp/paramiko").st_size == len(data)
    sftp.utime("/tmp/paramiko", (1, 2))
    assert sftp.stat("/tmp/paramiko").st_mtime == 2
    sftp.posix_rename("/tmp/paramiko", "/tmp/renamed")
    assert "renamed" in sftp.listdir("/tmp")
    sftp.remove("/tmp/renamed")
    try:
        sftp.stat("/tmp/renamed")
        raise AssertionError("it is still there")
    except FileNotFoundError:
        pass
    client.close()
    try:
        client.connect("127.0.0.1", port, "lab", password="wrn_wrong", allow_agent=False, look_for_keys=False)
        raise AssertionError("a wrong key was taken")
    except paramiko.AuthenticationException:
        pass


async def with_asyncssh():
    options = dict(port=port, username="lab", client_keys=[key_file], known_hosts=None, config=None)
    async with asyncssh.connect("127.0.0.1", **options) as connection:
        done = await asyncio.gather(*(connection.run(f"echo {n}; exit {n}") for n in range(20)))
        assert [(ran.stdout, ran.exit_status) for ran in done] == [(f"{n}\n", n) for n in range(20)]
        async with connection.create_process("trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done") as process:
            assert await process.stdout.readline() == "ready\n"
            process.send_signal("TERM")
            await process.wait()
            assert process.exit_status == 9
        async with connection.start_sftp_client() as sftp:
            await sftp.mkdir("/tmp/a")
            async with sftp.open("/tmp/a/f", "wb") as file:
                await file.write(b"x" * 1_000_000, 500_000)
            assert await sftp.getsize("/tmp/a/f") == 1_500_000
            assert (await sftp.statvfs("/tmp")).blocks > 0
            await sftp.link("/tmp/a/f", "/tmp/a/g")
            await sftp.symlink("f", "/tmp/a/l")
            assert await sftp.realpath("/tmp/a/l") == "/tmp/a/f"
            assert sorted(name for name in await sftp.listdir("/tmp/a") if not name.startswith(".")) == ["f", "g", "l"]
            await sftp.rmtree("/tmp/a")
        try:
            await connection.open_connection("169.254.169.254", 80)
            raise AssertionError("an address outside was reached")
        except asyncssh.ChannelOpenError:
            pass


with_paramiko()
asyncio.run(with_asyncssh())
