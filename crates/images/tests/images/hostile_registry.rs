//! Registries that lie, hang, refuse and break off.

use std::time::Duration;

use images::{Digest, Error, Images, Limits, Options, Progress, PullOptions};
use serde_json::{Value, json};

use crate::{
    fixture::{Layer, TestImage, everything_in, hasty_options, noise, options, small_image},
    server::{Answer, Request, Server, part},
};

/// An image with one layer of half a megabyte, which is its only blob that large.
fn large_image() -> TestImage {
    let tar = Layer::default().file("big", &noise(500_000)).tar();
    TestImage::new(&[(tar.clone(), tar)])
}

async fn pull_with(server: &Server, options: Options) -> Result<Digest, Error> {
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options.clone()).await.unwrap();
    let pulled = images.pull(&server.reference("app:v1"), PullOptions::default(), Progress::none()).await;
    let pulled = pulled.map(|image| image.digest);
    if pulled.is_err() {
        assert_eq!(images.list().await.unwrap(), []);
        // Whatever happened, a prune leaves nothing.
        images.prune().await.unwrap();
        assert_eq!(everything_in(home.path()), Vec::<std::path::PathBuf>::new());
    }
    pulled
}

async fn pull(server: &Server) -> Result<Digest, Error> {
    pull_with(server, options()).await
}

async fn pull_from_the_silent(server: &Server) -> Result<Digest, Error> {
    pull_with(server, hasty_options()).await
}

fn big(request: &Request, image: &TestImage) -> bool {
    request.path.ends_with(Digest::of(&image.blobs[0]).hex())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_that_breaks_off_is_gone_on_with() {
    let image = large_image();
    let blob = image.blobs[0].clone();
    let of = image.clone();
    let server = Server::of(&image, move |request| {
        if !big(request, &of) {
            return None;
        }
        match request.range_start() {
            None => Some(Answer::ClosesHalfway { body: blob.clone(), after: 200_000 }),
            Some(start) if start < 300_000 => {
                // Once more, from the middle.
                let Answer::Whole { headers, body, .. } = part(&blob, start) else { unreachable!() };
                let cut = body[..150_000].to_vec();
                let length = ("Content-Length".to_owned(), body.len().to_string());
                Some(Answer::Whole { status: 206, headers: [headers, vec![length]].concat(), body: cut })
            }
            Some(_) => None,
        }
    });
    assert_eq!(pull(&server).await.unwrap(), image.digest());
    let layer = Digest::of(&image.blobs[0]);
    let starts: Vec<_> = server
        .blob_requests()
        .into_iter()
        .filter(|(hex, _)| hex == layer.hex())
        .map(|(_, start)| start)
        .collect();
    assert_eq!(starts, [None, Some(200_000), Some(350_000)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_ignores_or_mistakes_ranges_is_asked_for_everything() {
    for confused in [false, true] {
        let image = large_image();
        let blob = image.blobs[0].clone();
        let of = image.clone();
        let server = Server::of(&image, move |request| match request.range_start() {
            _ if !big(request, &of) => None,
            None if request.earlier == 0 => {
                Some(Answer::ClosesHalfway { body: blob.clone(), after: 200_000 })
            }
            // Claims to send a part, and sends another one.
            Some(start) if confused => Some(part(&blob, start - 1)),
            _ => Some(Answer::ok(blob.clone())),
        });
        assert_eq!(pull(&server).await.unwrap(), image.digest());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_pull_is_gone_on_with_by_the_next() {
    let image = large_image();
    let blob = image.blobs[0].clone();
    let of = image.clone();
    let server = Server::of(&image, move |request| match request.earlier {
        _ if !big(request, &of) => None,
        0 => Some(Answer::ClosesHalfway { body: blob.clone(), after: 200_000 }),
        1..=3 => Some(Answer::status(503)),
        _ => None,
    });
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let reference = server.reference("app:v1");
    let failed = images.pull(&reference, PullOptions::default(), Progress::none()).await.unwrap_err();
    assert!(matches!(failed, Error::Unavailable { .. }), "{failed}");
    assert_eq!(images.disk_usage().await.unwrap().partial_bytes, 200_000);
    images.pull(&reference, PullOptions::default(), Progress::none()).await.unwrap();
    assert_eq!(server.blob_requests().last().unwrap().1, Some(200_000));
    assert_eq!(images.disk_usage().await.unwrap().partial_bytes, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pull_that_is_given_up_is_gone_on_with_by_the_next() {
    let image = large_image();
    let (of, blob) = (image.clone(), image.blobs[0].clone());
    let server = Server::of(&image, move |request| {
        (big(request, &of) && request.earlier == 0)
            .then(|| Answer::HangsHalfway { body: blob.clone(), after: 300_000 })
    });
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let reference = server.reference("app:v1");
    let (came, mut come) = tokio::sync::mpsc::unbounded_channel();
    let progress = Progress::new(move |event| {
        if let images::Event::Layer { state: images::LayerState::Downloading { bytes, .. }, .. } = event {
            let _nobody_waits = came.send(bytes);
        }
    });
    tokio::select! {
        pulled = images.pull(&reference, PullOptions::default(), progress) => panic!("{pulled:?}"),
        bytes = come.recv() => assert!(bytes.unwrap() >= 256 * 1024),
    }
    images.pull(&reference, PullOptions::default(), Progress::none()).await.unwrap();
    let resumed = server.blob_requests().last().unwrap().1.unwrap();
    assert!(resumed >= 256 * 1024, "{resumed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn passing_troubles_are_waited_out() {
    let image = small_image("patience");
    let server = Server::of(&image, |request| match request.earlier {
        0 => Some(Answer::status(503)),
        1 => Some(Answer::status(429).header("Retry-After", "1")),
        _ => None,
    });
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let waits = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let told = std::sync::Arc::clone(&waits);
    let progress = Progress::new(move |event| {
        if let images::Event::Retrying { wait, .. } = event {
            told.lock().unwrap().push(wait);
        }
    });
    images.pull(&server.reference("app:v1"), PullOptions::default(), progress).await.unwrap();
    // Manifest, configuration and layer: each was refused twice.
    let waits = waits.lock().unwrap().clone();
    let each = [Duration::from_millis(5), Duration::from_secs(1)];
    assert_eq!(waits, [each, each, each].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_say_what_they_are() {
    let answers = |status: u16| Server::new(move |_| Answer::status(status));
    for status in [401, 403] {
        assert!(matches!(pull(&answers(status)).await, Err(Error::Unauthorized { .. })), "{status}");
    }
    assert!(matches!(pull(&answers(404)).await, Err(Error::NotFound { .. })));
    let down = answers(500);
    assert!(matches!(pull(&down).await, Err(Error::Unavailable { .. })));
    assert_eq!(down.requests().len(), 3, "it was asked as often as the options say");
    let teapot = answers(418);
    assert!(matches!(pull(&teapot).await, Err(Error::Unavailable { .. })));

    let busy = Server::new(|_| Answer::status(429).header("Retry-After", "3600"));
    match pull(&busy).await {
        Err(Error::RateLimited { retry_after, .. }) => {
            assert_eq!(retry_after, Some(Duration::from_secs(3600)));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(busy.requests().len(), 1, "nobody waits an hour");

    // Nobody listens at all.
    let gone = Server::new(|_| Answer::status(500)).reference("app:v1");
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let error = images.pull(&gone, PullOptions::default(), Progress::none()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn redirects_without_end_and_silence_end() {
    let circle = Server::new(|request| Answer::status(307).header("Location", request.path.clone()));
    let error = pull(&circle).await.unwrap_err();
    assert!(
        matches!(&error, Error::Unavailable { why, .. } if why.contains("redirects without end")),
        "{error}"
    );

    let image = large_image();
    let silent = Server::new(|_| Answer::HangsHalfway { body: b"{\"schemaVersion\": 2".to_vec(), after: 5 });
    assert!(matches!(pull_from_the_silent(&silent).await, Err(Error::TimedOut { .. })));
    let (of, blob) = (image.clone(), image.blobs[0].clone());
    let stuck = Server::of(&image, move |request| {
        big(request, &of).then(|| Answer::HangsHalfway { body: blob.clone(), after: 1000 })
    });
    assert!(matches!(pull_from_the_silent(&stuck).await, Err(Error::TimedOut { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_says_nothing_or_always_hangs_up_is_given_up() {
    let image = large_image();
    for hangs in [true, false] {
        let answer = move |body: &[u8], after| match hangs {
            true => Answer::Silence,
            false => Answer::ClosesHalfway { body: body.to_vec(), after },
        };
        let manifest = image.manifest.clone();
        let mute = Server::new(move |_| answer(&manifest, 20));
        let error = pull_from_the_silent(&mute).await.unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. } | Error::Unavailable { .. }), "{error}");
        assert_eq!(mute.requests().len(), 3, "as often as the options say");

        let (of, blob) = (image.clone(), image.blobs[0].clone());
        let mute = Server::of(&image, move |request| big(request, &of).then(|| answer(&blob, 1000)));
        let error = pull_from_the_silent(&mute).await.unwrap_err();
        assert!(matches!(error, Error::TimedOut { .. } | Error::Unavailable { .. }), "{error}");
        let layer = Digest::of(&image.blobs[0]);
        let asked = mute.blob_requests().iter().filter(|(hex, _)| hex == layer.hex()).count();
        assert_eq!(asked, 3, "single bytes are no progress");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mirror_that_sends_nonsense_and_hangs_up_spoils_nothing() {
    let image = large_image();
    let (of, nonsense) = (image.clone(), vec![b'x'; image.blobs[0].len()]);
    let mirror = Server::of(&image, move |request| {
        big(request, &of).then(|| Answer::ClosesHalfway { body: nonsense.clone(), after: 200_000 })
    });
    let origin = Server::of(&image, |_| None);
    let registry = origin.reference("app:v1").registry().to_owned();
    let mirrors = vec![images::Mirror { registry, url: mirror.url() }];
    assert_eq!(pull_with(&origin, Options { mirrors, ..options() }).await.unwrap(), image.digest());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_shown_to_the_registry_alone_and_not_to_where_it_redirects() {
    let image = small_image("elsewhere");
    let storage = Server::of(&image, |_| None);
    let at = storage.url();
    let registry = Server::of(&image, move |request| {
        if !request.headers.contains_key("authorization") {
            return Some(Answer::status(401).header("WWW-Authenticate", "Basic realm=tests"));
        }
        let elsewhere = || Answer::status(307).header("Location", format!("{at}{}", request.path));
        request.is_blob().then(elsewhere)
    });
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let credentials = Some(images::Credentials { username: "ann".to_owned(), password: "s".to_owned() });
    let with = PullOptions { credentials, ..PullOptions::default() };
    images.pull(&registry.reference("app:v1"), with, Progress::none()).await.unwrap();
    let asked = storage.requests();
    assert_eq!(asked.len(), 2);
    assert!(asked.iter().all(|request| !request.headers.contains_key("authorization")), "{asked:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn contents_that_are_not_what_they_were_said_to_be() {
    let image = large_image();
    let of = image.clone();
    let with_blob = |blob: Vec<u8>| {
        let of = of.clone();
        Server::of(&image, move |request| big(request, &of).then(|| Answer::ok(blob.clone())))
    };
    let honest = image.blobs[0].clone();
    let mut flipped = honest.clone();
    flipped[300_000] ^= 1;
    for lie in [flipped, honest[..400_000].to_vec(), [&honest[..], b"more"].concat(), Vec::new()] {
        let error = pull(&with_blob(lie)).await.unwrap_err();
        // Noticed by the blob's own digest, before anything was unpacked.
        assert!(matches!(&error, Error::Corrupt { what, .. } if what.starts_with("blob ")), "{error}");
    }

    // The right blob for a configuration that says it unpacks to something else.
    let tar = Layer::default().file("a", b"a").tar();
    let lying = TestImage::new(&[(Layer::default().file("b", b"b").tar(), tar)]);
    let error = pull(&Server::of(&lying, |_| None)).await.unwrap_err();
    assert!(matches!(&error, Error::Corrupt { what, .. } if what == "the unpacked layer"), "{error}");

    // A manifest other than the one that was asked for by digest.
    let other = small_image("other");
    let server = Server::of(&other, |_| None);
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let reference = server.reference("app").at(image.digest());
    let error = images.pull(&reference, PullOptions::default(), Progress::none()).await.unwrap_err();
    assert!(
        matches!(&error, Error::Corrupt { expected, .. } if *expected == image.digest().to_string()),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn manifests_that_make_no_sense() {
    let image = small_image("sense");
    let honest: Value = serde_json::from_slice(&image.manifest).unwrap();
    let answer = |manifest: Vec<u8>| {
        Server::of(&image, move |request| (!request.is_blob()).then(|| Answer::ok(manifest.clone())))
    };
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut manifest = honest.clone();
        change(&mut manifest);
        answer(manifest.to_string().into_bytes())
    };
    let corrupt = [
        answer(Vec::new()),
        answer(image.manifest[..image.manifest.len() / 2].to_vec()),
        answer(b"[1, 2]".to_vec()),
        answer(vec![b'['; 100_000]),
        changed(&|manifest| manifest["manifests"] = json!([])),
        changed(&|manifest| manifest["layers"] = json!([])),
        changed(&|manifest| manifest["layers"][0]["size"] = json!(-5)),
        changed(&|manifest| manifest["layers"][0]["size"] = json!(7)),
        changed(&|manifest| manifest["config"]["size"] = json!(7)),
        changed(&|manifest| drop(manifest.as_object_mut().unwrap().remove("config"))),
    ];
    for server in &corrupt {
        let error = pull(server).await.unwrap_err();
        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    }
    let error =
        pull(&changed(&|manifest| manifest["layers"][0]["digest"] = json!("sha256:../../../etc/passwd")))
            .await;
    assert!(matches!(error, Err(Error::Corrupt { .. } | Error::Invalid { .. })), "{error:?}");
    let unsupported = [
        changed(&|manifest| manifest["schemaVersion"] = json!(1)),
        changed(&|manifest| {
            manifest["config"]["mediaType"] = json!("application/vnd.cncf.helm.config.v1+json");
        }),
        changed(&|manifest| {
            manifest["layers"][0]["mediaType"] =
                json!("application/vnd.oci.image.layer.v1.tar+gzip+encrypted");
        }),
        changed(&|manifest| manifest["layers"][0]["mediaType"] = json!("text/plain")),
        changed(&|manifest| manifest["layers"][0]["digest"] = json!(format!("sha512:{}", "0".repeat(128)))),
    ];
    for server in &unsupported {
        let error = pull(server).await.unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_much_is_refused_by_the_name_of_its_limit() {
    let image = large_image();
    let limited = async |server: &Server, limits: Limits| match pull_with(
        server,
        Options { limits, ..options() },
    )
    .await
    {
        Err(Error::TooLarge { limit, .. }) => limit,
        other => panic!("{other:?}"),
    };
    let endless = Server::new(|_| Answer::Endless);
    assert_eq!(limited(&endless, Limits::default()).await, "max_document_bytes");
    let server = Server::of(&image, |_| None);
    assert_eq!(
        limited(&server, Limits { max_blob_bytes: 1000, ..Limits::default() }).await,
        "max_blob_bytes"
    );
    assert_eq!(limited(&server, Limits { max_layers: 0, ..Limits::default() }).await, "max_layers");
    assert_eq!(
        limited(&server, Limits { max_layer_bytes: 9000, ..Limits::default() }).await,
        "max_layer_bytes"
    );
    // A blob without end stops where its manifest says that it ends.
    let of = image.clone();
    let flood = Server::of(&image, move |request| big(request, &of).then_some(Answer::Endless));
    assert!(matches!(pull(&flood).await, Err(Error::Corrupt { .. })));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_fetched_where_the_registry_says_and_shown_from_then_on() {
    let image = small_image("token");
    let server = Server::of(&image, |request| {
        if request.path.starts_with("/token") {
            let asked = "/token?scope=repository%3Aapp%3Apull&service=tests";
            assert_eq!(request.path, asked);
            let known = request.headers.get("authorization").map(String::as_str) == Some("Basic YW5uOnM=");
            return Some(if known { Answer::ok(r#"{"token": "opensesame"}"#) } else { Answer::status(401) });
        }
        if request.headers.get("authorization").map(String::as_str) == Some("Bearer opensesame") {
            return None;
        }
        let realm = format!("http://{}/token", request.headers["host"]);
        let challenge = format!(r#"Bearer realm="{realm}",service="tests",scope="repository:app:pull""#);
        Some(Answer::status(401).header("WWW-Authenticate", challenge))
    });
    let home = tempfile::tempdir().unwrap();
    let images = Images::open(home.path(), options()).await.unwrap();
    let reference = server.reference("app:v1");
    let anonymous = images.pull(&reference, PullOptions::default(), Progress::none()).await.unwrap_err();
    assert!(matches!(anonymous, Error::Unauthorized { .. }), "{anonymous}");
    let credentials = Some(images::Credentials { username: "ann".to_owned(), password: "s".to_owned() });
    let with = PullOptions { credentials, ..PullOptions::default() };
    images.pull(&reference, with, Progress::none()).await.unwrap();
    let tokens = server.requests().iter().filter(|request| request.path.starts_with("/token")).count();
    assert_eq!(tokens, 2);

    // Tokens that would be another header, or none at all.
    for token in [r#"{"token": "a\r\nX: y"}"#, r#"{"token": 5}"#, "{}", ""] {
        let bad = Server::new(move |request| {
            if request.path.starts_with("/token") {
                return Answer::ok(token);
            }
            let realm = format!(r#"Bearer realm="http://{}/token""#, request.headers["host"]);
            Answer::status(401).header("WWW-Authenticate", realm)
        });
        assert!(matches!(pull(&bad).await, Err(Error::Unavailable { .. })), "{token}");
    }
}
