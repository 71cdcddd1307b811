# Runs pip from its own wheel, for a Python without pip.
import hashlib, json, os, re, subprocess, sys, tempfile, urllib.request
index = os.environ["PIP_INDEX_URL"].rstrip("/")
fetch = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
page = urllib.request.Request(index + "/pip/", headers={"Accept": "application/vnd.pypi.simple.v1+json"})
def version(name):
    found = re.match(r"pip-([0-9]+(?:\.[0-9]+)*)-py(?:2\.py)?3-none-any\.whl$", name)
    return tuple(map(int, found.group(1).split("."))) if found else None
def fits(needs):
    least = re.search(r">=\s*3\.([0-9]+)", needs or "")
    return not least or sys.version_info >= (3, int(least.group(1)))
files = json.load(fetch(page, timeout=60))["files"]
files = [f for f in files if version(f["filename"]) and fits(f.get("requires-python")) and not f.get("yanked")]
if not files:
    sys.exit("no pip in the index fits this python")
best = max(files, key=lambda f: version(f["filename"]))
print("This python has no pip; using " + best["filename"] + " from the index.", flush=True)
wheel = fetch(urllib.request.urljoin(index + "/pip/", best["url"]), timeout=60).read()
wanted = best.get("hashes", {}).get("sha256")
if wanted and hashlib.sha256(wheel).hexdigest() != wanted:
    sys.exit("the wheel of pip is not the one that the index names")
with tempfile.TemporaryDirectory() as place:
    path = os.path.join(place, best["filename"])
    with open(path, "wb") as out:
        out.write(wheel)
    sys.exit(subprocess.call([sys.executable, os.path.join(path, "pip")] + sys.argv[1:]))
