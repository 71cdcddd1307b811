"""Makes small package indexes below a directory: index.py DIRECTORY ADDRESS."""
import base64, hashlib, io, json, os, subprocess, sys, tarfile, tempfile, zipfile

place, address = sys.argv[1:]

def put(path, content):
    path = os.path.join(place, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as out:
        out.write(content if isinstance(content, bytes) else content.encode())

def wheel(name, version, source):
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: x\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    filename, data = f"{name}-{version}-py3-none-any.whl", data.getvalue()
    put(f"pip/files/{filename}", data)
    digest = hashlib.sha256(data).hexdigest()
    put(f"pip/simple/{name}/index.html", f'<a href="../../files/{filename}#sha256={digest}">{filename}</a>')

wheel("burrow", "1.2", "answer = 42\n")
wheel("slowpoke", "0.1", "answer = 7\n")

def tarball(name, version, source):
    files = {"package.json": json.dumps({"name": name, "version": version, "main": "index.js"}), "index.js": source}
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"package/{path}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    data = data.getvalue()
    put(f"npm/{name}/-/{name}-{version}.tgz", data)
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode()
    dist = {"tarball": f"{address}/npm/{name}/-/{name}-{version}.tgz", "integrity": integrity}
    page = {"name": name, "dist-tags": {"latest": version}, "versions": {version: {"name": name, "version": version, "dist": dist}}}
    put(f"npm/{name}/index.html", json.dumps(page))

tarball("hollow", "3.4.5", "module.exports = () => 'hollow';\n")

def archive(name, version):
    control = f"Package: {name}\nVersion: {version}\nArchitecture: all\nMaintainer: x <x@example.org>\nDescription: x\n"
    with tempfile.TemporaryDirectory() as root:
        os.chmod(root, 0o755)
        script = "#!/bin/sh\nset -e\nmkdir -p /var/lib/badger\necho configured >/var/lib/badger/state\n"
        for path, text, mode in [
            ("DEBIAN/control", control, 0o644),
            ("DEBIAN/postinst", script, 0o755),
            (f"usr/bin/{name}", f"#!/bin/sh\necho {name} {version}\n", 0o755),
            (f"usr/share/man/man1/{name}.1", "x", 0o644),
        ]:
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w") as out:
                out.write(text)
            os.chmod(os.path.join(root, path), mode)
        made = os.path.join(place, "made.deb")
        subprocess.run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-b", root, made], check=True, stdout=subprocess.DEVNULL)
    with open(made, "rb") as file:
        data = file.read()
    put(f"apt/{name}.deb", data)
    digest = hashlib.sha256(data).hexdigest()
    listed = f"{control}Filename: ./{name}.deb\nSize: {len(data)}\nSHA256: {digest}\n".encode()
    put("apt/Packages", listed)
    put("apt/Release", f"Date: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n {hashlib.sha256(listed).hexdigest()} {len(listed)} Packages\n")

try:
    archive("badger", "2.0-1")
except FileNotFoundError:
    print("no dpkg-deb here: the test of apt will say so")
