# What VS Code Remote-SSH pipes into a shell at the other end: find out what the machine is, unpack the server that was
# copied before, start it so that it outlives this connection, and say where it listens.
commit=$1 token=$2
server=$HOME/.vscode-server/bin/$commit
echo "running"
echo "platform==$(uname -s)=="
echo "arch==$(uname -m)=="
mkdir -p "$server" && cd "$server" || exit 1
tar -xf "vscode-server-$commit.tar.gz" --strip-components 1 || exit 1
log=$HOME/.vscode-server/.$commit.log
VSCODE_COMMIT=$commit nohup node "$server/server-main.js" --start-server --host=127.0.0.1 --port=0 \
    "--connection-token=$token" >"$log" 2>&1 </dev/null &
echo $! >"$HOME/.vscode-server/.$commit.pid"
until listening=$(sed -n 's/.*listening on //p' "$log") && [ -n "$listening" ]; do
    kill -0 "$(cat "$HOME/.vscode-server/.$commit.pid")" || { cat "$log"; exit 1; }
    sleep 0.05
done
echo "listeningOn==$listening=="
