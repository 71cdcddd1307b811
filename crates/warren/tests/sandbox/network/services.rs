//! Servers that others wrote, in the world: nginx with TLS, package indexes and a git server behind it, sshd,
//! PostgreSQL, a registry of images. They end with the world.

use std::{
    env, fs,
    net::TcpStream,
    path::PathBuf,
    process::{Command, Stdio},
};

use super::world::{PLACE, not_tested};
use crate::harness::{Daemon, is_root, text, until};

pub(crate) const WEB: &str = "93.184.216.34";
pub(crate) const SHELL: &str = "93.184.216.35";
pub(crate) const DATABASE: &str = "93.184.216.36";
pub(crate) const REGISTRY: &str = "93.184.216.37";
const ROOT_ONLY: &str = "user root;";

/// A directory of this world.
fn place() -> PathBuf {
    PathBuf::from(env::var_os(PLACE).unwrap())
}

/// Runs a script in the world, beside the daemon.
fn outside(script: &str) {
    let done = Command::new("sh").args(["-ec", script]).current_dir(place()).output().unwrap();
    assert!(done.status.success(), "{script}: {}{}", text(&done.stdout), text(&done.stderr));
}

/// Starts a server, and waits until it listens.
fn start(program: &str, arguments: &[&str], at: &str) {
    let mut command = Command::new(program);
    let log = fs::File::create(place().join(format!("{}.log", at.replace(':', "-")))).unwrap();
    command
        .args(arguments)
        .current_dir(place())
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log);
    let mut server = command.spawn().unwrap();
    until(&format!("{program} listens at {at}"), || {
        assert!(server.try_wait().unwrap().is_none(), "{program} ended: see {at}");
        TcpStream::connect(at).is_ok()
    });
}

/// nginx for every name below `example`, with a certificate of an authority of its own: a page, packages for pip and
/// npm, and a git repository by `git http-backend`.
pub(crate) fn web() {
    outside(include_str!("certificates.sh"));
    fs::write(place().join("index.py"), include_str!("../index.py")).unwrap();
    fs::write(place().join("packages.py"), include_str!("packages.py")).unwrap();
    fs::write(place().join("git.py"), include_str!("git.py")).unwrap();
    outside(
        "mkdir -p www/git && echo 'served by nginx' > www/index.html
        /usr/bin/python3 index.py www https://web.example
        /usr/bin/python3 packages.py www
        git init -q --bare -b main www/git/code.git && git -C www/git/code.git config http.receivepack true",
    );
    let user = if is_root() { ROOT_ONLY } else { "" };
    fs::write(place().join("nginx.conf"), include_str!("nginx.conf").replace("USER", user)).unwrap();
    start("/usr/bin/python3", &["git.py"], "127.0.0.1:9000");
    let prefix = format!("{}/", place().display());
    start("/usr/sbin/nginx", &["-p", &prefix, "-c", "nginx.conf", "-e", "error.log"], &format!("{WEB}:443"));
}

/// A gRPC server at port 50051 of the same name.
pub(crate) fn grpc_server() -> bool {
    let has_grpc = Command::new("/usr/bin/python3").args(["-c", "import grpc"]).output().unwrap();
    if !has_grpc.status.success() {
        not_tested("gRPC for Python is not installed");
        return false;
    }
    fs::write(place().join("grpc_server.py"), include_str!("grpc_server.py")).unwrap();
    start("/usr/bin/python3", &["grpc_server.py"], &format!("{WEB}:50051"));
    true
}

/// Gives a sandbox the cargo that built this test; `false` where it cannot be read.
pub(crate) fn cargo(daemon: &Daemon, name: &str) -> bool {
    let cargo = env!("CARGO");
    let is_there = daemon.output(["cp", cargo, &format!("{name}:/tmp/cargo")]).status.success();
    if !is_there {
        not_tested(&format!("{cargo} cannot be copied"));
    }
    is_there
}

/// The authority of the world's servers.
pub(crate) fn authority() -> PathBuf {
    place().join("ca.pem")
}

/// Returns what the page `/who` was told, request by request.
pub(crate) fn heard() -> Vec<String> {
    fs::read_to_string(place().join("heard.log")).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Makes a sandbox trust the world's authority, as its owner would.
pub(crate) fn trust(daemon: &Daemon, name: &str) {
    let authority = fs::read_to_string(authority()).unwrap();
    daemon.sh_ok(name, &format!("cat > /tmp/ca.pem <<'END'\n{authority}\nEND"));
}

/// An OpenSSH server with the same git repository; whoever has the key may come in. Only root can run one.
pub(crate) fn shell_server(daemon: &Daemon, name: &str) -> bool {
    if !is_root() || !PathBuf::from("/usr/sbin/sshd").exists() {
        not_tested("ssh needs root and sshd");
        return false;
    }
    outside(
        "mkdir -p /run/sshd && ssh-keygen -q -t ed25519 -N '' -f host && ssh-keygen -q -t ed25519 -N '' -f user",
    );
    let here = place();
    let here = here.display();
    let option = [
        format!("-oHostKey={here}/host"),
        format!("-oAuthorizedKeysFile={here}/user.pub"),
        format!("-oListenAddress={SHELL}"),
        format!("-oPidFile={here}/sshd.pid"),
    ];
    let mut arguments =
        vec!["-D", "-e", "-f", "/dev/null", "-oUsePAM=no", "-oStrictModes=no", "-oPermitRootLogin=yes"];
    arguments.extend(option.iter().map(String::as_str));
    start("/usr/sbin/sshd", &arguments, &format!("{SHELL}:22"));
    let key = fs::read_to_string(place().join("user")).unwrap();
    daemon.sh_ok(name, &format!("umask 077; cat > /tmp/key <<'END'\n{key}END"));
    true
}

/// The path of the repository for ssh.
pub(crate) fn repository() -> String {
    place().join("www/git/code.git").display().to_string()
}

/// A PostgreSQL server without passwords.
pub(crate) fn database() -> bool {
    let programs = "PATH=$(ls -d /usr/lib/postgresql/*/bin | tail -n 1):$PATH";
    let nobody = if is_root() { "setpriv --reuid=65534 --regid=65534 --clear-groups" } else { "" };
    if !Command::new("sh")
        .args(["-c", &format!("{programs}; command -v initdb")])
        .output()
        .unwrap()
        .status
        .success()
    {
        not_tested("PostgreSQL is not installed");
        return false;
    }
    outside(&format!(
        "{programs}; chmod 755 . && mkdir -m 777 db && cd db
        {nobody} initdb -D data -A trust -U postgres --no-sync -E UTF8 --locale=C
        echo 'host all all 0.0.0.0/0 trust' >> data/pg_hba.conf"
    ));
    let serve = format!("{programs}; cd db; exec {nobody} postgres -D data -h {DATABASE} -k '' -F");
    start("sh", &["-c", &serve], &format!("{DATABASE}:5432"));
    true
}

/// Debian's `docker-registry` over TLS, at the port of HTTPS.
const REGISTRY_CONFIG: &str = "
version: 0.1
storage: { filesystem: { rootdirectory: registry } }
http:
  addr: ADDRESS
  tls: { certificate: web.pem, key: web.key }
";

/// An image of one layer, by hand: what `skopeo` makes of a directory is the registry's.
const IMAGE: &str = "
mkdir image && echo 'from the registry' > burrow.txt
tar cf layer.tar burrow.txt && layer=$(sha256sum < layer.tar | cut -c-64) && mv layer.tar image/$layer
printf '{\"architecture\":\"amd64\",\"os\":\"linux\",\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"sha256:%s\"]}}' $layer > config
config=$(sha256sum < config | cut -c-64) && mv config image/$config
type=application/vnd.oci.image
printf '{\"schemaVersion\":2,\"mediaType\":\"%s.manifest.v1+json\",\"config\":{\"mediaType\":\"%s.config.v1+json\",\"digest\":\"sha256:%s\",\"size\":%d},\"layers\":[{\"mediaType\":\"%s.layer.v1.tar\",\"digest\":\"sha256:%s\",\"size\":%d}]}' \
    $type $type $config $(stat -c %s image/$config) $type $layer $(stat -c %s image/$layer) > image/manifest.json
echo 'Directory Transport Version: 1.1' > image/version
skopeo --insecure-policy copy -q --dest-tls-verify=false dir:image docker://ADDRESS/burrow:1
";

/// A registry with the image `burrow:1`; the authority must be there already.
pub(crate) fn registry() -> bool {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    if !has("docker-registry") || !has("skopeo") {
        not_tested("docker-registry or skopeo is not installed");
        return false;
    }
    let address = format!("{REGISTRY}:443");
    fs::write(place().join("registry.yml"), REGISTRY_CONFIG.replace("ADDRESS", &address)).unwrap();
    start("docker-registry", &["serve", "registry.yml"], &address);
    outside(&IMAGE.replace("ADDRESS", &address));
    true
}
