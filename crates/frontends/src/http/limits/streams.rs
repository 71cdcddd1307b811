//! Streams that are open: counted while they last, and ended when the key that opened them is.
//!
//! A stream is an answer whose length is not known when it begins, or an upgraded connection.

use std::{
    collections::HashMap,
    fmt,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, HttpBody},
    http::{
        Method, StatusCode,
        header::{ACCEPT, CONTENT_TYPE},
        request::Parts,
    },
    response::Response,
};
use bytes::Bytes;
use engine::Principal;
use futures_util::future::BoxFuture;
use hyper::body::Frame;
use sandbox::{Error, ErrorKind};

use super::{account, all_shares, too_much};
use crate::http::{auth::Authenticate, error::Refusal, link_auth::LinkPlaces};

const EVENT_STREAM: &str = "text/event-stream";
/// How long a caller with too many streams is told to wait. Nobody knows when one ends.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The hint of limits that several callers share.
const WAIT: &str = "Try again when others have finished.";

/// Streams that all links of one principal may hold open. Whoever passes a link on does not pass on all places.
const MAX_LINK_STREAMS: usize = 64;
/// The same of a single link, which must leave some for the others.
const MAX_STREAMS_OF_ONE_LINK: usize = 32;
/// Streams that all watchers by one share may hold open.
const MAX_SHARE_STREAMS: usize = 64;
/// The same of all shares of one principal. A principal can make hundreds of shares, and must not take the streams of
/// others with them.
const MAX_STREAMS_OF_ALL_SHARES: usize = 128;

/// How many streams are open, and how many may be.
#[derive(Debug)]
pub(crate) struct Streams {
    max_each: usize,
    max_all: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    n_all: usize,
    /// Only those who have any: never more than there are streams.
    n_each: HashMap<String, usize>,
}

impl Streams {
    pub(super) fn new(max_each: usize, max_all: usize) -> Self {
        Self { max_each, max_all, open: Mutex::default() }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, open: &Open, lease: &StreamLease) -> Result<(), Refusal> {
        for Account { name, most, refusal, hint } in lease.accounts(self) {
            if open.n_each.get(&name).copied().unwrap_or_default() >= most {
                return Err(too_much(format!("{refusal}, which is the limit"), hint, RETRY_AFTER));
            }
        }
        if open.n_all >= self.max_all {
            return Err(too_much(
                format!("{} streams are open on this daemon, which is the limit", self.max_all),
                "Try again later. The daemon's operator sets the limit with --max-streams.",
                RETRY_AFTER,
            ));
        }
        Ok(())
    }
}

/// A limit that a stream counts towards.
struct Account {
    name: String,
    /// Most streams, and the message for one more.
    most: usize,
    refusal: String,
    hint: &'static str,
}

/// One open stream. Its place is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct StreamPlace {
    streams: Arc<Streams>,
    accounts: Vec<String>,
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut open = self.streams.open();
        open.n_all = open.n_all.saturating_sub(1);
        for account in &self.accounts {
            if let Some(n) = open.n_each.get_mut(account) {
                *n -= 1;
                if *n == 0 {
                    open.n_each.remove(account);
                }
            }
        }
    }
}

/// A request's means to open streams. An extension of every request whose asker is known.
#[derive(Debug, Clone)]
pub(crate) struct StreamLease {
    /// Not counted, when absent.
    streams: Option<Arc<Streams>>,
    auth: Arc<dyn Authenticate>,
    who: Principal,
    /// Set if the asker came by a link instead of a key.
    link: Option<LinkPlaces>,
}

impl StreamLease {
    pub(crate) fn new(streams: Option<Arc<Streams>>, auth: Arc<dyn Authenticate>, who: Principal) -> Self {
        Self { streams, auth, who, link: None }
    }

    #[must_use]
    pub(crate) fn by_link(self, link: Option<LinkPlaces>) -> Self {
        Self { link, ..self }
    }

    /// Identifies the caller: connections to servers inside are kept for the same caller only.
    pub(crate) fn caller(&self) -> String {
        format!("{} {:?}", account(&self.who), self.link)
    }

    fn accounts(&self, streams: &Streams) -> Vec<Account> {
        let (own, who) = (account(&self.who), &self.who.name);
        let of_all_links = || {
            let most = streams.max_each.min(MAX_LINK_STREAMS);
            let refusal = format!("{most} streams by links are open for {who}");
            // Names and ids never begin with a slash.
            Account { name: format!("/links/{own}"), most, refusal, hint: WAIT }
        };
        let of_all_shares = |name| {
            let most = streams.max_each.min(MAX_STREAMS_OF_ALL_SHARES);
            let refusal = format!("{most} streams by shares are open for whoever made this one");
            Account { name, most, refusal, hint: WAIT }
        };
        match &self.link {
            Some(LinkPlaces::OneLink(link)) => {
                let most = streams.max_each.div_ceil(2).min(MAX_STREAMS_OF_ONE_LINK);
                let refusal = format!("{most} streams by this link are open");
                let hint = "Close one, or try again when others have finished.";
                vec![of_all_links(), Account { name: format!("/links/{own}/{link}"), most, refusal, hint }]
            }
            Some(LinkPlaces::AllLinks) => vec![of_all_links()],
            Some(LinkPlaces::Maker) | None => {
                let is_share = self.who.is_watcher();
                let most = if is_share { streams.max_each.min(MAX_SHARE_STREAMS) } else { streams.max_each };
                let refusal = format!("{who} has {most} streams open");
                let hint = "Close one. The daemon's operator sets the limit with --max-streams.";
                let of_this = Account { name: own, most, refusal, hint };
                all_shares(&self.who).map(of_all_shares).into_iter().chain([of_this]).collect()
            }
        }
    }

    /// A place for one more stream, where they are counted.
    pub(crate) fn take(&self) -> Result<Option<StreamPlace>, Refusal> {
        self.place(true)
    }

    fn place(&self, is_limited: bool) -> Result<Option<StreamPlace>, Refusal> {
        let Some(streams) = &self.streams else { return Ok(None) };
        let mut open = streams.open();
        if is_limited {
            streams.check(&open, self)?;
        }
        let accounts: Vec<_> = self.accounts(streams).into_iter().map(|account| account.name).collect();
        open.n_all += 1;
        accounts.iter().for_each(|account| *open.n_each.entry(account.clone()).or_default() += 1);
        Ok(Some(StreamPlace { streams: Arc::clone(streams), accounts }))
    }

    /// Returns when the principal is none any more.
    pub(crate) fn ended(&self) -> BoxFuture<'static, ()> {
        self.auth.ended(&self.who)
    }

    /// Refuses a request that changes something before it does so, where its answer will be a stream and there is no
    /// place.
    pub(crate) fn check_before(&self, request: &Parts) -> Result<(), Refusal> {
        let accepts = request.headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
        let wants_stream = accepts.flat_map(|text| text.split(',')).any(is_event_stream);
        match &self.streams {
            Some(streams) if wants_stream && !request.method.is_safe() => {
                streams.check(&streams.open(), self)
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Counts the answer while it lasts, if it is a stream. One that only reads is refused where there is no place;
    /// work that was done is never answered with a refusal.
    pub(crate) fn count(&self, method: &Method, response: Response) -> Result<Response, Refusal> {
        let is_stream = response.body().size_hint().exact().is_none()
            && response.status() != StatusCode::SWITCHING_PROTOCOLS;
        // The daemon's owner on its own socket: nothing to count, and no key to end.
        let is_free = self.streams.is_none() && self.who.key.is_none();
        if !is_stream || is_free {
            return Ok(response);
        }
        let place = self.place(method.is_safe())?;
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let is_event_stream = content_type.is_some_and(is_event_stream);
        let ended = self.ended();
        Ok(response.map(|inner| {
            Body::new(CountedBody { inner, is_event_stream, while_open: Some(WhileOpen { ended, place }) })
        }))
    }
}

fn is_event_stream(media_range: &str) -> bool {
    media_range.split(';').next().is_some_and(|essence| essence.trim().eq_ignore_ascii_case(EVENT_STREAM))
}

/// A body that holds its place until it ended.
struct CountedBody {
    inner: Body,
    is_event_stream: bool,
    while_open: Option<WhileOpen>,
}

struct WhileOpen {
    ended: BoxFuture<'static, ()>,
    #[expect(dead_code, reason = "held, not read")]
    place: Option<StreamPlace>,
}

impl fmt::Debug for CountedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountedBody").field("is_event_stream", &self.is_event_stream).finish_non_exhaustive()
    }
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Some(open) = &mut self.while_open else { return Poll::Ready(None) };
        if open.ended.as_mut().poll(cx).is_ready() {
            self.while_open = None;
            self.inner = Body::empty();
            // Events end between two of them. Half a file must not look whole, so that connection breaks.
            return Poll::Ready((!self.is_event_stream).then(|| Err(axum::Error::new(key_ended()))));
        }
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        if matches!(frame, Poll::Ready(None | Some(Err(_)))) {
            self.while_open = None;
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }
}

pub(crate) fn key_ended() -> Error {
    Error::new(ErrorKind::Unauthenticated, "the key or the link was revoked or has expired")
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, StreamExt as _, stream};
    use tokio::sync::watch;

    use super::*;
    use crate::http::auth::DevAuth;

    /// Everybody is somebody until the word is given.
    #[derive(Debug)]
    struct Revocable(watch::Receiver<bool>);

    impl Authenticate for Revocable {
        fn authenticate<'a>(&'a self, _: &'a Parts) -> BoxFuture<'a, sandbox::Result<Principal>> {
            async { Ok(Principal::operator("ana")) }.boxed()
        }

        fn ended(&self, _: &Principal) -> BoxFuture<'static, ()> {
            let mut word = self.0.clone();
            async move { word.wait_for(|is_revoked| *is_revoked).await.map(drop).unwrap_or_default() }.boxed()
        }
    }

    fn lease(max_each: usize, max_all: usize) -> StreamLease {
        let auth = DevAuth::for_address(([127, 0, 0, 1], 1).into()).unwrap();
        StreamLease::new(
            Some(Arc::new(Streams::new(max_each, max_all))),
            Arc::new(auth),
            Principal::operator("ana"),
        )
    }

    fn n_open(lease: &StreamLease) -> usize {
        lease.streams.as_ref().unwrap().open().n_all
    }

    fn endless() -> Body {
        Body::from_stream(stream::iter([Ok::<_, Error>(Bytes::from("x"))]).chain(stream::pending()))
    }

    fn of(response: Response) -> impl futures_util::Stream<Item = Result<Bytes, axum::Error>> + Unpin {
        response.into_body().into_data_stream()
    }

    #[test]
    fn a_stream_is_counted_until_it_is_dropped() {
        let ana = lease(2, 3);
        let get = |lease: &StreamLease| lease.count(&Method::GET, Response::new(endless()));
        let (first, _second) = (get(&ana).unwrap(), get(&ana).unwrap());
        let refused = get(&ana).unwrap_err();
        assert!(refused.error.to_string().contains("ana has 2 streams"), "{}", refused.error);
        assert_eq!(refused.retry_after, Some(RETRY_AFTER));
        // Another one gets the last place of all; then there is none.
        let bob = StreamLease { who: Principal::operator("bob"), ..ana.clone() };
        let _third = get(&bob).unwrap();
        assert!(get(&bob).unwrap_err().error.to_string().contains("on this daemon"));
        drop(first);
        let _fourth = get(&bob).unwrap();
        assert_eq!(n_open(&ana), 3);
    }

    #[test]
    fn links_have_few_places_and_take_none_of_their_makers_nor_all_of_each_others() {
        let ana = lease(2 * MAX_LINK_STREAMS, 4 * MAX_LINK_STREAMS);
        let link = |name: &str| ana.clone().by_link(Some(LinkPlaces::OneLink(name.to_owned())));
        let get = |lease: &StreamLease| lease.count(&Method::GET, Response::new(endless()));
        let each = MAX_STREAMS_OF_ONE_LINK;
        let _held: Vec<_> = (0..each).map(|_| get(&link("one")).unwrap()).collect();
        assert!(get(&link("one")).unwrap_err().error.to_string().contains("by this link"));
        let _others: Vec<_> = (each..MAX_LINK_STREAMS).map(|_| get(&link("two")).unwrap()).collect();
        assert!(get(&link("three")).unwrap_err().error.to_string().contains("by links"));
        let _own: Vec<_> = (0..2 * MAX_LINK_STREAMS).map(|_| get(&ana).unwrap()).collect();
        assert!(get(&ana).is_err());
    }

    #[test]
    fn many_shares_get_no_more_than_a_few_and_take_none_of_their_makers() {
        let ana = lease(512, 1024);
        let share = |byte| {
            let share = Some(sandbox::ShareId::from_random([byte; 8]));
            StreamLease { who: Principal { share, ..ana.who.clone() }, ..ana.clone() }
        };
        let get = |lease: &StreamLease| lease.count(&Method::GET, Response::new(endless()));
        let mut held: Vec<_> = (0..MAX_SHARE_STREAMS).map(|_| get(&share(1)).unwrap()).collect();
        assert!(get(&share(1)).unwrap_err().error.to_string().contains("has 64 streams"));
        held.extend((MAX_SHARE_STREAMS..MAX_STREAMS_OF_ALL_SHARES).map(|_| get(&share(2)).unwrap()));
        assert!(get(&share(3)).unwrap_err().error.to_string().contains("by shares"));
        held.push(get(&ana).unwrap());
        drop(held);
        assert!(ana.streams.as_ref().unwrap().open().n_each.is_empty());
    }

    #[test]
    fn an_answer_of_known_length_is_no_stream() {
        let ana = lease(0, 0);
        ana.count(&Method::GET, Response::new(Body::from("whole"))).unwrap();
        ana.count(&Method::GET, Response::new(Body::empty())).unwrap();
        assert!(ana.count(&Method::GET, Response::new(endless())).is_err());
    }

    #[test]
    fn work_is_refused_before_it_is_done_or_not_at_all() {
        let ana = lease(0, 0);
        let parts = |method: Method, accept: &str| {
            let request = axum::http::Request::builder().method(method).header(ACCEPT, accept);
            request.body(()).unwrap().into_parts().0
        };
        let both = "application/json, Text/Event-Stream;q=0.5";
        assert!(ana.check_before(&parts(Method::POST, both)).is_err());
        ana.check_before(&parts(Method::POST, "application/json")).unwrap();
        ana.check_before(&parts(Method::GET, both)).unwrap();
        let _late = ana.count(&Method::POST, Response::new(endless())).unwrap();
        assert_eq!(n_open(&ana), 1);
    }

    #[tokio::test]
    async fn a_stream_that_was_read_to_its_end_gives_its_place_back() {
        let ana = lease(1, 1);
        let short = Body::from_stream(stream::iter([Ok::<_, Error>(Bytes::from("x"))]));
        let mut reading = of(ana.count(&Method::GET, Response::new(short)).unwrap());
        assert_eq!(reading.next().await.unwrap().unwrap(), "x");
        assert!(reading.next().await.is_none());
        let _next = ana.count(&Method::GET, Response::new(endless())).unwrap();
    }

    #[tokio::test]
    async fn a_revoked_key_ends_events_and_breaks_files() {
        let (revoke, word) = watch::channel(false);
        let ana = StreamLease { auth: Arc::new(Revocable(word)), ..lease(2, 2) };
        let mut events = Response::new(endless());
        events.headers_mut().insert(CONTENT_TYPE, "text/event-stream".parse().unwrap());
        let mut events = of(ana.count(&Method::GET, events).unwrap());
        let mut file = of(ana.count(&Method::GET, Response::new(endless())).unwrap());
        assert_eq!(events.next().await.unwrap().unwrap(), "x");
        assert_eq!(file.next().await.unwrap().unwrap(), "x");
        assert!(events.next().now_or_never().is_none(), "it lasts");
        revoke.send(true).unwrap();
        assert!(events.next().await.is_none());
        assert!(file.next().await.unwrap().unwrap_err().to_string().contains("revoked"));
        assert_eq!(n_open(&ana), 0);
    }
}
