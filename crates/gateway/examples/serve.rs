#![allow(clippy::all, clippy::unwrap_used, clippy::print_stdout)]
use gateway::*;
#[tokio::main]
async fn main() {
    let a: Vec<String> = std::env::args().collect();
    let mut c = GatewayConfig::new(&a[1]);
    if let Ok(u) = std::env::var("GW_PIP") {
        c.pip_index = u.parse().unwrap();
    }
    c.apt_sources = vec![
        "http://deb.debian.org/debian".parse().unwrap(),
        "http://deb.debian.org/debian-security".parse().unwrap(),
    ];
    let g = Gateway::open(c).unwrap();
    let l = tokio::net::TcpListener::bind(("127.0.0.1", a[2].parse().unwrap())).await.unwrap();
    let g2 = g.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(std::time::Duration::from_secs(5)).await;
            println!("{:?}", g2.stats());
        }
    });
    loop {
        let (s, _) = l.accept().await.unwrap();
        let g = g.clone();
        tokio::spawn(async move { g.serve(s, Scope::ALL).await });
    }
}
