//! A token service, as registries of the large providers have them: whoever shows the password gets a signed token for
//! what it asks for, and everybody else one for nothing.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use serde_json::{Value, json};

use crate::run;

pub(crate) const ISSUER: &str = "test-issuer";
pub(crate) const SERVICE: &str = "test-registry";
const VALID_SECONDS: u64 = 300;

/// Ends with the process: it holds nothing but a port.
#[derive(Debug)]
pub(crate) struct TokenService {
    pub(crate) address: String,
    asked: Arc<Mutex<Vec<String>>>,
}

struct Signer {
    key: PathBuf,
    /// Base64 of the certificate, as tokens carry it.
    certificate: String,
    /// The header that shows the password.
    basic: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl TokenService {
    /// Its key and certificate are `token.key` and `token.crt` in `directory`.
    pub(crate) fn start(directory: &Path, user: &str, password: &str) -> Self {
        let at = |name: &str| directory.join(name).to_str().unwrap().to_owned();
        let made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=test", "-days", "2"];
        run("openssl", &[&made[..], &["-keyout", &at("token.key"), "-out", &at("token.crt")]].concat());
        let text = fs::read_to_string(at("token.crt")).unwrap();
        let certificate = text.lines().filter(|line| !line.starts_with('-')).collect();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let basic = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
        let signer = Signer { key: at("token.key").into(), certificate, basic, asked: Arc::clone(&asked) };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                signer.answer(stream);
            }
        });
        Self { address, asked }
    }

    /// The scopes that tokens were asked for, in order.
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Signer {
    fn answer(&self, mut stream: TcpStream) {
        let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
        let target = lines.next().and_then(|line| line.split(' ').nth(1).map(str::to_owned));
        let headers: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        let shown = headers.iter().find_map(|header| {
            let (name, value) = header.split_once(": ")?;
            name.eq_ignore_ascii_case("authorization").then_some(value)
        });
        let (status, body) = match shown {
            Some(shown) if shown != self.basic => ("401 Unauthorized", json!({})),
            shown => {
                let scopes = scopes(&target.unwrap_or_default());
                self.asked.lock().unwrap_or_else(PoisonError::into_inner).extend(scopes.iter().cloned());
                let granted: Vec<_> =
                    scopes.iter().filter(|_| shown.is_some()).map(|one| access(one)).collect();
                ("200 OK", json!({ "token": self.token(&granted) }))
            }
        };
        let body = body.to_string();
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        stream.write_all(format!("{head}{body}").as_bytes()).ok();
    }

    fn token(&self, access: &[Value]) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
        let header = json!({ "typ": "JWT", "alg": "RS256", "x5c": [self.certificate] });
        let claims = json!({
            "iss": ISSUER, "sub": "test", "aud": SERVICE, "jti": now.to_string(), "access": access,
            "iat": now, "nbf": now.saturating_sub(5), "exp": now + VALID_SECONDS,
        });
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", encode(&header), encode(&claims));
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(self.sign(signed.as_bytes())))
    }

    fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        let mut openssl = Command::new("openssl")
            .args(["dgst", "-sha256", "-sign"])
            .arg(&self.key)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        openssl.stdin.take().unwrap().write_all(bytes).unwrap();
        let mut signature = Vec::new();
        openssl.stdout.take().unwrap().read_to_end(&mut signature).unwrap();
        assert!(openssl.wait().unwrap().success());
        signature
    }
}

/// The values of `scope` in the query.
fn scopes(target: &str) -> Vec<String> {
    let query = target.split_once('?').map_or("", |(_, query)| query);
    let decode = |value: &str| value.replace("%3A", ":").replace("%2F", "/").replace("%2C", ",");
    query.split('&').filter_map(|pair| pair.strip_prefix("scope=")).map(decode).collect()
}

/// `repository:team/app:pull,push` as a claim.
fn access(scope: &str) -> Value {
    let mut parts = scope.splitn(3, ':');
    let mut next = || parts.next().unwrap_or_default();
    let (kind, name) = (next(), next());
    let actions: Vec<&str> = next().split(',').collect();
    json!({ "type": kind, "name": name, "actions": actions })
}
