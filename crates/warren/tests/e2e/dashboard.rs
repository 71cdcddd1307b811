//! `warren dashboard`: an address that signs a browser in, and the page that is part of the binary.

use serde_json::json;

use crate::support::World;

#[test]
fn the_address_signs_in_once_as_the_daemons_owner() {
    let world = World::new();
    let served = world.serve(&[]);
    let made = world.run(&["dashboard", "--json"]).expect(0).json();
    let address = made["address"].as_str().unwrap();
    let once = address.strip_prefix(&format!("{}/#once=", served.url())).unwrap();
    assert_eq!(world.run(&["dashboard", "--no-open"]).expect(0).text().lines().count(), 1);

    let host = format!("host: {}", served.url().split_once("://").unwrap().1);
    let page = served.ask(&["GET / HTTP/1.1", &host, "accept: text/html"]).expect(200);
    assert!(page.body.contains("<title>") && page.sent.contains("default-src 'none'"), "{page:?}");
    let sign_in = |body: &str| {
        let length = format!("content-length: {}\r\n\r\n{body}", body.len());
        served.ask(&["POST /v1/session HTTP/1.1", &host, "content-type: application/json", &length])
    };
    let body = json!({ "once": once }).to_string();
    let answer = sign_in(&body).expect(200);
    let cookie = answer.sent.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
    let cookie = format!("cookie: {}", cookie.split(';').next().unwrap());
    let proof = format!("x-warren-dashboard: {}", answer.json()["proof"].as_str().unwrap());
    sign_in(&body).expect(401);
    let get = |target: &str| served.ask(&[&format!("GET {target} HTTP/1.1"), &host, &cookie, &proof]);
    assert_eq!(get("/v1/session").expect(200).json()["isOwner"], true);
    get("/v1/keys").expect(200);
    let diagnosis = get("/v1/doctor").expect(200).json();
    let own = world.run(&["doctor", "--json"]).json();
    assert_eq!(
        (&diagnosis["ok"], diagnosis["checks"].as_array().unwrap().len()),
        (&own["ok"], own["checks"].as_array().unwrap().len())
    );
    assert!(!get("/v1/fleet").expect(200).json()["history"].as_array().unwrap().is_empty());
    let log = served.stop();
    assert!(!log.contains(once), "a token is never logged");
}

#[test]
fn a_daemon_without_tcp_says_how_to_have_one() {
    let world = World::new();
    world.run(&["create", "--name", "dev"]).expect(0);
    world.run(&["exec", "dev", "touch", "/root/a"]).expect(0);
    for words in [&["dashboard"][..], &["link", "dev:/root/a"]] {
        let refused = world.run(words);
        assert!(refused.stderr.contains("does not listen on TCP"), "{refused:?}");
        assert!(refused.stderr.contains("warren serve --take-over"), "{refused:?}");
    }
}
