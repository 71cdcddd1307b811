# Before dpkg unpacks the archives that stdin names: makes the files that they replace the sandbox's own. dpkg first
# links each of them, and without root a file of the host cannot be linked. What cannot be replaced is said before
# anything is changed.
status=0
# With a single id no file can be given to another user, which the index of manual pages insists on: skip it.
few_ids=$(awk '{ n += $3 } END { print n < 2 }' /proc/self/uid_map 2>/dev/null)
[ "$few_ids" = 1 ] && sed -i '/ man-db/d' /var/lib/dpkg/triggers/File 2>/dev/null
while read -r archive; do
  for path in $(dpkg-deb --fsys-tarfile "$archive" 2>/dev/null | tar -t 2>/dev/null | grep -v '^./usr/share/doc/'); do
    file=${path#.}
    [ -L "$file" ] || [ -f "$file" ] || continue
    if [ ! -L "$file" ] && ln "$file" "$file.warren" 2>/dev/null; then
      rm -f "$file.warren"
    elif ! [ -w "${file%/*}" ]; then
      echo "E: $file is the host's and cannot be replaced here: without root, its directory cannot be changed." \
        "Use an image instead, such as --image debian." >&2
      status=1
      break
    elif [ -L "$file" ]; then
      ln -sf "$(readlink "$file")" "$file.warren" 2>/dev/null && mv -fT "$file.warren" "$file"
    elif cp --preserve=mode,timestamps "$file" "$file.warren" 2>/dev/null; then
      mv -f "$file.warren" "$file" || rm -f "$file.warren"
    fi
  done
done
exit $status
