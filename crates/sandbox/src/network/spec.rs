//! The network that was asked for.

use std::{fmt, net::IpAddr, str::FromStr};

use serde::{Deserialize, Serialize};

use super::rule::{RuleAction, shown};
use crate::{ByteSize, Error, Result, object::only_object};

/// The hosts that a sandbox reaches without a rule.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Preset {
    /// Nothing.
    None,
    /// Package indexes, through the daemon's package gateway.
    #[default]
    Packages,
    /// The internet, over TCP. Not the host, private networks or metadata services.
    Public,
    /// As `public`, and private networks.
    #[serde(rename = "public+private")]
    PublicPrivate,
    /// Everything, over TCP and UDP, but the host and metadata services.
    All,
}

impl Preset {
    pub const ALL: [Self; 5] = [Self::None, Self::Packages, Self::Public, Self::PublicPrivate, Self::All];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Packages => "packages",
            Self::Public => "public",
            Self::PublicPrivate => "public+private",
            Self::All => "all",
        }
    }
}

impl fmt::Display for Preset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Preset {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|preset| preset.as_str() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::as_str).join(", ");
            Error::invalid(format!("{:?} is not a network preset: use {known}", shown(text)))
        })
    }
}

/// The network that is asked for. Everything may be left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct NetworkSpec {
    /// The hosts reached without a rule; `packages` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preset: Option<Preset>,
    /// Rules that allow, such as `api.example.org`, `*.example.org:443`, `10.2.0.0/16:5432`, `host:3000` or
    /// `udp@192.0.2.1:123`. They come after `deny` and `rules`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 512)]
    pub allow: Vec<String>,
    /// Rules that deny. They come first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 512)]
    pub deny: Vec<String>,
    /// Rules in their order: the first that matches decides.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 512)]
    pub rules: Vec<RuleSpec>,
    #[serde(default, skip_serializing_if = "DnsSpec::is_default")]
    pub dns: DnsSpec,
    #[serde(default, skip_serializing_if = "NetworkLimitsSpec::is_default")]
    pub limits: NetworkLimitsSpec,
}
only_object!(NetworkSpec);

impl NetworkSpec {
    pub fn preset(preset: Preset) -> Self {
        Self { preset: Some(preset), ..Self::default() }
    }

    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// One rule of an ordered list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct RuleSpec {
    pub action: RuleAction,
    /// Written as in `allow`.
    #[schema(example = "*.example.org:443")]
    pub target: String,
}
only_object!(RuleSpec);

/// The resolution of names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct DnsSpec {
    /// Servers to ask in place of the host's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>, max_items = 4)]
    pub nameservers: Vec<IpAddr>,
    /// Types of records that are answered; the usual ones when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 16)]
    pub records: Vec<RecordType>,
    /// How long a server may take to answer before the next one is asked, in milliseconds; 2,000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 50, maximum = 10000)]
    pub query_timeout_ms: Option<u64>,
}
only_object!(DnsSpec);

impl DnsSpec {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Types of DNS records that a sandbox may ask for.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum RecordType {
    A,
    Aaaa,
    Caa,
    Cname,
    Https,
    Mx,
    Ns,
    Ptr,
    Soa,
    Srv,
    Svcb,
    Txt,
}

impl RecordType {
    /// The number in DNS messages.
    pub fn code(self) -> u16 {
        match self {
            Self::A => 1,
            Self::Ns => 2,
            Self::Cname => 5,
            Self::Soa => 6,
            Self::Ptr => 12,
            Self::Mx => 15,
            Self::Txt => 16,
            Self::Aaaa => 28,
            Self::Srv => 33,
            Self::Svcb => 64,
            Self::Https => 65,
            Self::Caa => 257,
        }
    }
}

/// Limits of a sandbox's network that were asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, remote = "Self")]
pub struct NetworkLimitsSpec {
    /// TCP connections that are open at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 65536)]
    pub connections: Option<u32>,
    /// UDP flows that are open at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 65536)]
    pub udp_flows: Option<u32>,
    /// New connections a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 100000)]
    pub connects_per_second: Option<u32>,
    /// Questions a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 10000)]
    pub dns_per_second: Option<u32>,
    /// Bytes a second, each way; no limit when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<ByteSize>,
}
only_object!(NetworkLimitsSpec);

impl NetworkLimitsSpec {
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
