#!/bin/sh
# Installs Warren: sh install.sh --help
set -eu

usage() {
  cat <<'TEXT'
Installs Warren: sh install.sh [--from DIRECTORY|URL] [--prefix DIRECTORY]

Takes the archive for this machine from where this script is, or from where --from says, checks it against SHA256SUMS,
and installs the program, completions, pages of the manual and units for systemd below /usr/local (root) or ~/.local
(everyone else).
TEXT
}

fail() {
  echo "install.sh: $*" >&2
  exit 1
}

# Fetches a file into $work: fetch NAME
fetch() {
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

# Fetches, checks and unpacks an archive, and tries its program where it will be: a temporary directory may forbid programs.
# Fails if the program does not start: try ARCHIVE
try() {
  fetch "$1"
  (cd "$work" && grep -F "  $1" SHA256SUMS | sha256sum -c - >/dev/null 2>&1) ||
    fail "$1 is not what SHA256SUMS says: nothing was installed"
  tar -xzf "$work/$1" -C "$work" || fail "$1 cannot be unpacked"
  top=$work/${1%.tar.gz}
  staged=$prefix/bin/.warren.new
  { mkdir -p "$prefix/bin" && cp "$top/bin/warren" "$staged"; } || fail "cannot write to $prefix/bin: nothing was installed"
  "$staged" --version >/dev/null || {
    echo "install.sh: the program in $1 does not start on this machine" >&2
    return 1
  }
}

# The name of the archive for glibc if this machine's is new enough, then that of the static one.
archives() {
  sed -nE 's/^[0-9a-f]{64}  (warren-[0-9][^ /]*-linux-x86_64-(glibc2\.[0-9]+|static)\.tar\.gz)$/\1/p' "$work/SHA256SUMS" >"$work/archives"
  found=$(getconf GNU_LIBC_VERSION 2>/dev/null | sed -n 's/^glibc 2\.\([0-9]*\).*/\1/p')
  for kind in glibc static; do
    name=$(grep -e "-$kind" "$work/archives") || continue
    [ "$(echo "$name" | wc -l)" = 1 ] || fail "there are several archives for $kind in $from"
    needed=$(echo "$name" | sed -n 's/.*-glibc2\.\([0-9]*\)\.tar\.gz/\1/p')
    [ "${needed:-0}" -gt "${found:-0}" ] || echo "$name"
  done
}

put() { # file, directory, name: in one step, so that whoever reads the older one is not disturbed
  mkdir -p "$prefix/$2"
  cp "$1" "$prefix/$2/.$3.new"
  mv -f "$prefix/$2/.$3.new" "$prefix/$2/$3"
}

# Files that name the program's path. Paths with other characters would need quoting in each of them.
put_with_path() {
  case $prefix in
    *[!A-Za-z0-9/._+-]*)
      echo "not installed: units for systemd and a profile for AppArmor, which cannot name $prefix"
      return
      ;;
  esac
  for unit in system user; do
    file=warren.service
    [ $unit = system ] || file=warren-user.service
    sed "s|/usr/bin/warren|$prefix/bin/warren|" "$top/share/systemd/$file" >"$work/$file"
  done
  put "$work/warren-user.service" share/systemd/user warren.service
  [ "$(id -u)" = 0 ] || return 0
  put "$work/warren.service" lib/systemd/system warren.service

  # Older versions of AppArmor have no rule for user namespaces, and could not read the profile.
  [ -e /etc/apparmor.d/abi/4.0 ] || return 0
  name=$(echo "$prefix/bin/warren" | sed 's|^/||; s|/|.|g')
  profile=/etc/apparmor.d/$name
  if [ -e "$profile" ]; then
    echo "kept the profile for AppArmor: $profile"
  else
    sed "s|profile warren /usr/bin/warren|profile $name $prefix/bin/warren|" "$top/share/apparmor" >"$profile"
  fi
  if [ -d /sys/kernel/security/apparmor ] && command -v apparmor_parser >/dev/null; then
    apparmor_parser --replace --write-cache "$profile" || echo "AppArmor does not take $profile"
  fi
}

main() {
  from=${WARREN_FROM:-}
  prefix=${WARREN_PREFIX:-}
  while [ $# -gt 0 ]; do
    case $1 in
      --from) from=${2:?--from needs a directory or an address} && shift 2 ;;
      --prefix) prefix=${2:?--prefix needs a directory} && shift 2 ;;
      -h | --help) usage && exit ;;
      *) fail "unknown argument: $1 (see --help)" ;;
    esac
  done
  if [ -z "$from" ]; then
    # Read from a pipe, the script has no place of its own.
    [ ! -f "$0" ] || from=$(dirname "$0")
    [ -e "$from/SHA256SUMS" ] || fail "no packages beside this script: say where they are with --from"
  fi
  if [ -z "$prefix" ]; then
    if [ "$(id -u)" = 0 ]; then prefix=/usr/local; else prefix=${HOME:?}/.local; fi
  fi
  case $prefix in
    /*) ;;
    *) prefix=$PWD/$prefix ;;
  esac
  [ "$(uname -s) $(uname -m)" = "Linux x86_64" ] || fail "Warren runs on Linux on x86_64, this is $(uname -s) on $(uname -m)"

  staged=
  work=$(mktemp -d)
  trap 'rm -rf "$work" ${staged:+"$staged"}' EXIT
  # What is installed is for everyone, whatever the caller's umask is.
  umask 022
  fetch SHA256SUMS
  for archive in $(archives) none; do
    [ "$archive" != none ] || fail "there is no archive in $from whose program starts on this machine: nothing was installed"
    ! try "$archive" || break
  done

  replaced=
  [ ! -e "$prefix/bin/warren" ] || replaced=yes
  mv -f "$staged" "$prefix/bin/warren"
  put "$top/share/completions/warren.bash" share/bash-completion/completions warren
  put "$top/share/completions/_warren" share/zsh/site-functions _warren
  put "$top/share/completions/warren.fish" share/fish/vendor_completions.d warren.fish
  for page in "$top"/share/man/*; do
    put "$page" share/man/man1 "${page##*/}"
  done
  for file in LICENSE THIRD-PARTY-LICENSES; do
    put "$top/$file" share/doc/warren $file
  done
  put_with_path

  echo "installed $("$prefix/bin/warren" --version) as $prefix/bin/warren"
  case :$PATH: in
    *":$prefix/bin:"*) ;;
    *) echo "$prefix/bin is not in your PATH: add it, or call the program by its path" ;;
  esac
  if [ -n "$replaced" ]; then
    echo "it replaced another version: run warren self-check, which says whether a daemon of that version still runs"
  else
    echo "try: warren run python3 -c 'print(\"hello from a sandbox\")'   (if it does not work: warren doctor)"
  fi
}

# The last line: of a script that was cut off on its way, nothing runs.
main "$@"
