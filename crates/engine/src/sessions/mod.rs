//! Sessions of the dashboard: how a person in a browser becomes a [`Principal`].
//!
//! A session begins with a key, with a one-time token that someone with a right asked for, or with a share. It never
//! has more rights than that, and ends with it at once. Cookies are shared by every port of a host name, and sandboxes
//! publish ports on the daemon's own; so a session has two halves, the cookie's and the page's, and neither is enough.
//!
//! Sessions are in memory only: after a restart of the daemon a person signs in again.

mod share;
mod table;
mod view;

use std::{fmt, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use sandbox::{Error, ErrorKind, KeyId, Next, Result};
use store::ShareRecord;

use self::table::Session;
pub(crate) use self::{share::Shares, table::Sessions};
pub use self::{
    share::{ShareSpec, ShareTarget, ShareView, SignedShare},
    table::SessionId,
    view::{SessionKind, SessionRights, SessionView, Watched},
};
use crate::{Engine, Principal, Scope, clock::later, core::Core, names};

/// How long a session lasts at most.
pub const SESSION_LASTS: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a one-time token waits for its use.
pub const ONCE_LASTS: Duration = Duration::from_secs(5 * 60);
const SECRET_BYTES: usize = 32;

/// How someone signs in.
pub enum SignIn {
    /// The secret of a key.
    Key(String),
    /// A one-time token.
    Once(String),
    /// The token of a share.
    Share(String),
}

/// A new session. Its two secrets exist nowhere else.
#[derive(Clone)]
pub struct NewSession {
    /// For the cookie.
    pub token: String,
    /// For the page.
    pub proof: String,
    pub expires_at: Timestamp,
    pub who: Principal,
}

/// A token that is good for one sign-in.
#[derive(Clone)]
pub struct OnceToken {
    pub token: String,
    pub expires_at: Timestamp,
}

/// Says which type it is and none of its secrets.
macro_rules! secret_debug {
    ($($name:ident),*) => {$(
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(stringify!($name))
            }
        }
    )*};
}

secret_debug!(SignIn, NewSession, OnceToken);

/// The principal whose rights a session has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holder {
    /// The daemon's owner, by the name it had when it asked for the one-time token.
    Owner(String),
    /// Whoever tries things out on a daemon that asks nobody for a key.
    Developer(String),
    Key(KeyId),
    Share(ShareRecord),
}

impl Holder {
    /// Returns the holder of a session with the caller's own rights, if the caller may have one.
    fn of(who: &Principal) -> Result<Self> {
        match (&who.key, &who.scope) {
            // Otherwise a session could renew itself for ever, and the holder of a link could have one.
            _ if who.session.is_some() => Err(no_once(who)),
            (_, Scope::Sandbox { .. } | Scope::Maker { .. }) => Err(no_once(who)),
            (Some(key), _) => Ok(Self::Key(key.clone())),
            (None, _) if who.is_owner => Ok(Self::Owner(who.name.clone())),
            (None, Scope::All) => Ok(Self::Developer(who.name.clone())),
            (None, Scope::One(_)) => Err(no_once(who)),
        }
    }

    /// Returns the key under which sessions are counted together; none for those of no key.
    fn account(&self) -> Option<&KeyId> {
        match self {
            Self::Key(key) => Some(key),
            Self::Share(share) => share.key.as_ref(),
            Self::Owner(_) | Self::Developer(_) => None,
        }
    }
}

impl Core {
    /// The principal of a session's holder, as long as what it stems from holds.
    fn holder(&self, holder: &Holder) -> Option<Principal> {
        match holder {
            Holder::Owner(name) => Some(Principal::operator(name.clone())),
            Holder::Developer(name) => Some(Principal::developer(name.clone())),
            Holder::Key(key) => self.keys.principal(key, self.clock.now()),
            Holder::Share(share) => self.watcher(share),
        }
    }

    fn begin_session(&self, holder: Holder, until: Option<Timestamp>) -> Result<NewSession> {
        let now = self.clock.now();
        let who = self.holder(&holder).ok_or_else(signed_out)?;
        let longest = later(now, SESSION_LASTS);
        let expires_at = until.map_or(longest, |until| until.min(longest));
        let (token, proof) = (random_secret()?, random_secret()?);
        let id = self.keys.sessions.insert(&token, &proof, holder, expires_at, now)?;
        self.keys.note_ended_sessions();
        Ok(NewSession { token, proof, expires_at, who: Principal { session: Some(id), ..who } })
    }
}

impl Engine {
    /// Begins a session.
    #[crate::boxed]
    pub async fn sign_in(&self, how: SignIn) -> Result<NewSession> {
        let core = self.core();
        let now = core.clock.now();
        match how {
            SignIn::Key(secret) => {
                let who = self.authenticate_key(&secret).await?;
                let key = who.key.ok_or_else(signed_out)?;
                let until = core.keys.expires_at(&key);
                core.begin_session(Holder::Key(key), until)
            }
            SignIn::Once(token) => {
                let holder = core.keys.sessions.take_once(&token, now).ok_or_else(no_such_token)?;
                core.begin_session(holder, None)
            }
            SignIn::Share(token) => {
                let share = core.open_share(&token)?;
                let until = share.expires_at;
                core.begin_session(Holder::Share(share), Some(until))
            }
        }
    }

    /// Makes a token with which a browser signs in once, with the rights of whoever asks here.
    pub fn new_once_token(&self, who: &Principal) -> Result<OnceToken> {
        let core = self.core();
        core.keys.admit(who, core.clock.now())?;
        let holder = Holder::of(who)?;
        let (token, now) = (random_secret()?, core.clock.now());
        let expires_at = later(now, ONCE_LASTS);
        core.keys.sessions.insert_once(&token, holder, expires_at, now)?;
        Ok(OnceToken { token, expires_at })
    }

    /// The principal of a session that lasts; both of its halves are needed.
    pub fn open_session(&self, token: &str, proof: &str) -> Option<Principal> {
        let core = self.core();
        let Session { id, holder, .. } = core.keys.sessions.find(token, proof, core.clock.now())?;
        let who = core.holder(&holder)?;
        Some(Principal { session: Some(id), ..who })
    }

    /// Ends the caller's session, and what it has open.
    pub fn sign_out(&self, who: &Principal) {
        if let Some(id) = who.session {
            self.core().keys.sessions.remove(id);
            self.core().keys.note_ended_sessions();
        }
    }
}

fn random_secret() -> Result<String> {
    let random: [u8; SECRET_BYTES] = names::random_bytes()?;
    Ok(URL_SAFE_NO_PAD.encode(random))
}

fn no_once(who: &Principal) -> Error {
    let message = format!("{} cannot begin another session", who.name);
    Error::new(ErrorKind::Denied, message).with_next(Next::SignIn)
}

fn no_such_token() -> Error {
    Error::new(ErrorKind::Unauthenticated, "this address was used before, or is older than 5 minutes")
        .with_next(Next::SignIn)
}

/// The error for a session whose origin, such as a key, has ended.
pub(crate) fn signed_out() -> Error {
    Error::new(ErrorKind::Unauthenticated, "this session has ended").with_next(Next::SignIn)
}

fn too_many_once(most: usize) -> Error {
    let message = format!("{most} one-time addresses wait for their use, which is the limit");
    Error::new(ErrorKind::LimitReached, message).with_hint("Try again in a few minutes.")
}

fn too_many(most: usize) -> Error {
    Error::new(ErrorKind::LimitReached, format!("the limit of {most} sessions is reached"))
        .with_hint("Sign out elsewhere, or try again later.")
}
