#!/bin/sh
# Installs Warren: sh install.sh [--from DIRECTORY|URL] [--prefix DIRECTORY]
#
# Takes the archive for this machine from where this script is, or from where --from says, checks it against SHA256SUMS,
# and installs the program, completions and pages of the manual below /usr/local (root) or ~/.local (everyone else).
set -eu

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

from=${WARREN_FROM:-}
prefix=${WARREN_PREFIX:-}
while [ $# -gt 0 ]; do
  case $1 in
    --from) from=${2:?--from needs a directory or an address} && shift 2 ;;
    --prefix) prefix=${2:?--prefix needs a directory} && shift 2 ;;
    -h | --help) sed -n '2,5s/^# \{0,1\}//p' "$0" && exit ;;
    *) fail "unknown argument: $1 (see --help)" ;;
  esac
done
if [ -z "$from" ]; then
  from=$(dirname "$0")
  [ -e "$from/SHA256SUMS" ] || fail "no packages beside this script: say where they are with --from"
fi
if [ -z "$prefix" ]; then
  if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=${HOME:?}/.local; fi
fi
[ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || fail "Warren runs on Linux on x86_64, this is $(uname -s) on $(uname -m)"

# The program for glibc 2.31 and later; the static one wherever there is another C library, or an older one.
has_glibc() {
  found=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc 2\.\([0-9]*\).*/\1/p')
  [ "${found:-0}" -ge 31 ]
}
if has_glibc; then sort=linux-x86_64; else sort=linux-x86_64-static; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fetch() { # name
  case $from in
    *://*)
      if command -v curl >/dev/null; then
        curl --fail --silent --show-error --location --output "$work/$1" "$from/$1"
      else
        wget -q -O "$work/$1" "$from/$1"
      fi
      ;;
    *) cp "$from/$1" "$work/$1" ;;
  esac || fail "could not get $from/$1"
}

fetch SHA256SUMS
line=$(grep -E "^[0-9a-f]{64}  warren-[0-9][^ /]*-$sort\.tar\.gz\$" "$work/SHA256SUMS") || fail "there is no archive for $sort in $from"
[ "$(echo "$line" | wc -l)" = 1 ] || fail "there are several archives for $sort in $from"
archive=${line#*  }
fetch "$archive"
(cd "$work" && echo "$line" | sha256sum -c - >/dev/null 2>&1) || fail "$archive is not what SHA256SUMS says: nothing was installed"
tar -xzf "$work/$archive" -C "$work" || fail "$archive cannot be unpacked"
top=$work/${archive%.tar.gz}

put() { # file, directory, name: in one step, so that a program that runs is not disturbed
  mkdir -p "$prefix/$2"
  cp "$1" "$prefix/$2/.$3.new"
  mv -f "$prefix/$2/.$3.new" "$prefix/$2/$3"
}
put "$top/bin/warren" bin warren
put "$top/share/completions/warren.bash" share/bash-completion/completions warren
put "$top/share/completions/_warren" share/zsh/site-functions _warren
put "$top/share/completions/warren.fish" share/fish/vendor_completions.d warren.fish
for page in "$top"/share/man/*; do
  put "$page" share/man/man1 "${page##*/}"
done

echo "installed $("$prefix/bin/warren" --version) as $prefix/bin/warren"
case :$PATH: in
  *":$prefix/bin:"*) ;;
  *) echo "$prefix/bin is not in your PATH: add it, or call the program by its path" ;;
esac
echo "try: warren run python3 -c 'print(\"hello from a sandbox\")'   (if it does not work: warren doctor)"
