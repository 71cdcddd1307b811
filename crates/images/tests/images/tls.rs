//! TLS, with a certificate authority that only the options know.

use std::{fs, net::SocketAddr, path::Path, sync::Arc};

use images::{Error, Images, Mirror, Options, Progress, PullOptions};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    },
};

use crate::{
    fixture::{options, run, small_image},
    server::Server,
};

fn make_certificate(directory: &Path) {
    let at = |name: &str| directory.join(name).to_str().unwrap().to_owned();
    let subject = [
        "-subj",
        "/CN=tests",
        "-addext",
        "subjectAltName=DNS:localhost",
        "-addext",
        "basicConstraints=critical,CA:FALSE",
    ];
    let new =
        ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"];
    let out = [at("key.pem"), at("certificate.pem")];
    run("openssl", &[&new[..], &subject, &["-keyout", &out[0], "-out", &out[1]]].concat());
}

/// Takes TLS off and passes on to `plain`.
async fn terminate(directory: &Path, plain: SocketAddr) -> SocketAddr {
    let certificate = CertificateDer::from_pem_file(directory.join("certificate.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(directory.join("key.pem")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut secure) = acceptor.accept(connection).await else { return };
                let mut onwards = TcpStream::connect(plain).await.unwrap();
                let _closed = tokio::io::copy_bidirectional(&mut secure, &mut onwards).await;
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_is_verified_against_the_system_and_the_options() {
    let files = tempfile::tempdir().unwrap();
    make_certificate(files.path());
    let image = small_image("tls");
    let server = Server::of(&image, |_| None);
    let address = terminate(files.path(), server.address()).await;
    let gone = Server::new(|_| crate::server::Answer::status(404));
    let reference = gone.reference("app:v1");

    let home = tempfile::tempdir().unwrap();
    let with = |ca_files| Options {
        mirrors: vec![Mirror {
            registry: reference.registry().to_owned(),
            url: format!("https://localhost:{}", address.port()),
        }],
        ca_files,
        ..options()
    };
    let pull = async |options: Options| {
        let images = Images::open(home.path(), options).await.unwrap();
        images.pull(&reference, PullOptions::default(), Progress::none()).await.map(|image| image.digest)
    };
    // The mirror is not believed, and the registry itself has nothing.
    assert!(matches!(pull(with(Vec::new())).await, Err(Error::NotFound { .. })));
    assert_eq!(server.requests().len(), 0);
    let known = files.path().join("certificate.pem");
    assert_eq!(pull(with(vec![known])).await.unwrap(), image.digest());

    let nonsense = files.path().join("nonsense.pem");
    fs::write(&nonsense, "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let refused = Images::open(home.path(), with(vec![nonsense])).await;
    assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
}
