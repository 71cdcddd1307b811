//! Pulls for people who do not run the daemon: nothing of the host's own network is reached for them.

use images::{Auth, Credentials, Error, Images, Mirror, Options, Progress, PullOptions, Reach};

use crate::{
    fixture::{options, small_image},
    server::{Answer, Server},
};

fn public() -> PullOptions {
    PullOptions { reach: Reach::Public, ..PullOptions::default() }
}

/// Something inside, which must not hear of any pull.
fn inside() -> Server {
    Server::new(|_request| Answer::ok(r#"{"token":"INTERNAL"}"#))
}

async fn pull_from(server: &Server, options: Options, asked: PullOptions) -> Result<(), Error> {
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options).await.unwrap();
    images.pull(&server.reference("app:v1"), asked, Progress::none()).await.map(drop)
}

/// As if the operator had named this registry.
fn naming(server: &Server) -> Options {
    Options { insecure: vec![server.address().to_string()], ..options() }
}

#[track_caller]
fn assert_denied(result: Result<(), Error>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Denied { .. }) && !error.is_retryable(), "{error:?}");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_inside_is_not_asked_unless_it_was_named() {
    let image = small_image("x");
    let server = Server::of(&image, |_request| None);
    for insecure in [false, true] {
        let told = assert_denied(pull_from(&server, options(), PullOptions { insecure, ..public() }).await);
        assert!(told.contains("127.0.0.1 is not at a public address"), "{told}");
    }
    let by_name: images::Reference = format!("localhost:{}/app:v1", server.address().port()).parse().unwrap();
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    assert_denied(images.pull(&by_name, public(), Progress::none()).await.map(drop));
    assert!(server.requests().is_empty());

    pull_from(&server, naming(&server), public()).await.unwrap();
    let registries = Some(vec![server.address().to_string()]);
    // In the list it may be anywhere; that it is spoken to without TLS is because of loopback.
    pull_from(&server, Options { registries, ..options() }, public()).await.unwrap();
    pull_from(&server, options(), PullOptions::default()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn only_registries_of_the_list_are_asked_where_there_is_one() {
    let server = Server::of(&small_image("x"), |_request| None);
    let registries = Some(vec!["docker.io".to_owned()]);
    let mirrors = vec![Mirror { registry: server.address().to_string(), url: server.url() }];
    let listed = Options { registries, mirrors, ..options() };
    let told = assert_denied(pull_from(&server, listed, public()).await);
    assert!(told.contains("not among the registries"), "{told}");
    assert!(server.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redirect_does_not_lead_inside() {
    let hidden = inside();
    for kind in ["/manifests/", "/blobs/"] {
        let elsewhere = format!("{}/redirected", hidden.url());
        let server = Server::of(&small_image("x"), move |request| {
            let there = || Answer::status(307).header("Location", elsewhere.clone());
            request.path.contains(kind).then(there)
        });
        assert_denied(pull_from(&server, naming(&server), public()).await);
    }
    assert!(hidden.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_service_is_not_inside() {
    let hidden = inside();
    for realm in [format!("{}/admin", hidden.url()), format!("http://localhost:{}/", hidden.address().port())]
    {
        let challenge = format!(r#"Bearer realm="{realm}",service="s""#);
        let server =
            Server::new(move |_request| Answer::status(401).header("WWW-Authenticate", challenge.clone()));
        assert_denied(pull_from(&server, naming(&server), public()).await);
        assert_eq!(server.requests().len(), 1, "what the token service said was passed on");
    }
    assert!(hidden.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_login_is_lent_only_to_registries_of_the_list() {
    let server = Server::of(&small_image("x"), |request| {
        let is_known = request.headers.contains_key("authorization");
        (!is_known).then(|| Answer::status(401).header("WWW-Authenticate", "Basic realm=\"private\""))
    });
    let password = Credentials { username: "operator".to_owned(), password: "secret".to_owned() };
    let name = server.address().to_string();
    let auth = Auth::Given([(name.clone(), password.clone())].into());
    let named = Options { auth, ..naming(&server) };
    let refused = pull_from(&server, named.clone(), public()).await.unwrap_err();
    assert!(matches!(refused, Error::Unauthorized { .. }), "{refused:?}");
    assert!(server.requests().iter().all(|request| !request.headers.contains_key("authorization")));

    let own = PullOptions { credentials: Some(password), ..public() };
    pull_from(&server, named.clone(), own).await.unwrap();
    pull_from(&server, named.clone(), PullOptions::default()).await.unwrap();
    pull_from(&server, Options { registries: Some(vec![name]), ..named }, public()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_stands_for_an_address_inside_is_not_dialled() {
    // Nothing but the address tells that this is inside.
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned();
    let found = tokio::net::lookup_host((name.as_str(), 0)).await.map(Vec::from_iter).unwrap_or_default();
    if found.is_empty() || !found.iter().all(|address| address.ip().is_loopback()) || name == "localhost" {
        return println!("skipped: this host's own name, {name:?}, does not stand for loopback");
    }
    let server = Server::of(&small_image("x"), |_request| None);
    let reference: images::Reference = format!("{name}:{}/app:v1", server.address().port()).parse().unwrap();
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let asked = PullOptions { insecure: true, ..public() };
    let told = assert_denied(images.pull(&reference, asked, Progress::none()).await.map(drop));
    assert!(told.contains("is not at a public address"), "{told}");
    assert!(server.requests().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_that_were_named_are_asked() {
    let image = small_image("x");
    let mirror = Server::of(&image, |_request| None);
    let home = tempfile::tempdir().unwrap();
    let mirrors = vec![Mirror { registry: "docker.io".to_owned(), url: mirror.url() }];
    let images = Images::open(home.path(), Options { mirrors, ..options() }).await.unwrap();
    let pulled = images.pull(&"app:v1".parse().unwrap(), public(), Progress::none()).await.unwrap();
    assert_eq!(pulled.digest, image.digest());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_answers_is_not_told_in_full() {
    let server = Server::new(|_request| Answer::ok(format!("{:?}", "secret ".repeat(1000))));
    let error = pull_from(&server, options(), PullOptions::default()).await.unwrap_err();
    assert!(matches!(error, Error::Corrupt { .. }) && error.to_string().len() < 300, "{error}");
}
