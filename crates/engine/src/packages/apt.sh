# Installs the given packages; WARREN_APT_SOURCES is the text of a sources file, WARREN_OWN_FILES what runs before dpkg.
command -v apt-get >/dev/null || { echo "E: there is no apt-get in this sandbox" >&2; exit 127; }
place=$(mktemp -d) || exit 1
trap 'rm -rf "$place"' EXIT
printf '%s\n' "$WARREN_APT_SOURCES" >"$place/warren.sources"
printf '%s\n' "$WARREN_OWN_FILES" >"$place/own-files"
# Nothing here could start services.
if [ ! -e /usr/sbin/policy-rc.d ] && [ ! -d /run/systemd/system ]; then
  printf '#!/bin/sh\nexit 101\n' 2>/dev/null >/usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d
fi
apt() {
  apt-get -q -y -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$place" \
    -o APT::Sandbox::User=root -o APT::Install-Recommends=false -o Acquire::http::Proxy=DIRECT \
    -o Acquire::Languages=none -o Acquire::GzipIndexes=true -o Dpkg::Use-Pty=0 \
    -o "DPkg::Pre-Install-Pkgs::=sh $place/own-files" -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@"
}
stamp=/var/cache/apt/warren-$(cksum <"$place/warren.sources" | tr -d ' ')
is_fresh() { [ -n "$(find "$stamp" -mmin -360 2>/dev/null)" ]; }
refresh() { apt update && : >"$stamp"; }
if is_fresh; then
  apt install "$@" && exit 0
  code=$?
  # A package missing from the lists does not exist; one that the archive no longer has is found again by newer lists.
  apt --print-uris install "$@" >/dev/null 2>&1 || exit "$code"
fi
refresh || exit
apt install "$@"
