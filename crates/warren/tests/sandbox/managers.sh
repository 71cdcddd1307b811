# Makes a root with Python, pip, apt-get and busybox out of this machine's: managers.sh DIRECTORY ADDRESS
set -e
root=$1
mkdir -p "$root/bin" "$root/usr/lib/python3/dist-packages" "$root/usr/share" "$root/root" "$root/etc/apt/apt.conf.d" \
  "$root/etc/apt/preferences.d" "$root/etc/apt/trusted.gpg.d" "$root/var/lib/dpkg" "$root/var/lib/apt/lists/partial" \
  "$root/var/cache/apt/archives/partial"
put() {
  mkdir -p "$root$(dirname "$1")"
  cp -L "$1" "$root$1"
}
python=$(readlink -f /usr/bin/python3)
methods=$(dirname "$(ls /usr/lib/apt/methods/http)")
for program in "$python" /usr/bin/apt-get /usr/bin/apt-config /usr/bin/dpkg "$methods/http" "$methods/copy" "$methods/store" "$methods/gpgv"; do
  put "$program"
  ldd "$program" | grep -o '/[^ ]*' | while read -r library; do put "$library"; done
done
cp "$(command -v busybox)" "$root/bin/busybox"
for name in sh cat ls env grep wget id; do ln -s busybox "$root/bin/$name"; done
ln -s "$(basename "$python")" "$root/usr/bin/python3"
library=usr/lib/$(basename "$python")
tar c -C / --exclude=test --exclude=tests --exclude=__pycache__ --exclude=idlelib --exclude=lib2to3 --exclude=ensurepip \
  --exclude='config-*' --exclude=pydoc_data --exclude=unittest --exclude=tkinter --exclude=t64.exe --exclude='*.exe' \
  --exclude='lib-dynload/_codecs_*' "$library" usr/lib/python3/dist-packages/pip | tar x -C "$root"
cp -r /usr/share/dpkg "$root/usr/share/"
: >"$root/var/lib/dpkg/status"
echo 'root:x:0:0::/root:/bin/sh' >"$root/etc/passwd"
echo "deb [trusted=yes] $2/apt/ ./" >"$root/etc/apt/sources.list"
