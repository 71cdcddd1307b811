//! Authentication on the Unix socket.

use axum::http::Request;
use engine::Principal;
use frontends::http::{Authenticate, Peer, PeerCredentials, SocketAuth};
use sandbox::{ErrorKind, KeySpec, Namespace, Result};

use crate::support::Server;

const OWNER: u32 = 1000;

#[tokio::test]
async fn an_owner_who_shows_a_key_has_that_keys_rights_and_no_more() {
    let server = Server::new().await;
    let blue: Namespace = "blue".parse().unwrap();
    let spec = KeySpec { namespace: Some(blue.clone()), ..KeySpec::default() };
    let key = server.engine.create_key(&Principal::operator("test"), spec).await.unwrap().secret;
    let auth = SocketAuth::new(PeerCredentials { owner: OWNER }, server.engine.clone());
    let ask = async |uid: u32, target: &str, header: Option<String>| -> Result<Principal> {
        let request = Request::get(target).extension(Peer::Unix { uid, pid: None });
        let request = match header {
            Some(value) => request.header("authorization", value),
            None => request,
        };
        auth.authenticate(&request.body(()).unwrap().into_parts().0).await
    };
    let bearer = |key: &str| Some(format!("Bearer {key}"));
    let owner = ask(OWNER, "/mcp", None).await.unwrap();
    assert!(owner.is_owner && owner.sees(&Namespace::default()));
    for narrowed in
        [ask(OWNER, "/mcp", bearer(&key)).await, ask(0, &format!("/mcp?api_key={key}"), None).await]
    {
        let who = narrowed.unwrap();
        assert!(!who.is_owner && who.sees(&blue) && !who.sees(&Namespace::default()), "{who:?}");
    }
    // A wrong key does not fall back to the owner, and a right one lets nobody else in.
    let refused = async |uid, header| ask(uid, "/mcp", header).await.unwrap_err().kind();
    assert_eq!(refused(OWNER, bearer("wrn_wrong")).await, ErrorKind::Unauthenticated);
    assert_eq!(refused(OWNER, Some("Basic x".to_owned())).await, ErrorKind::Unauthenticated);
    assert_eq!(refused(OWNER + 1, bearer(&key)).await, ErrorKind::Denied);
}
