//! Origins of pages of other sites.

use http::header::HeaderValue;
use http::{Uri, uri::Authority};
use serde::Deserialize;

/// The origin of a page, as browsers send it.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "String")]
pub(crate) struct Origin {
    /// The value of the header `Origin`.
    pub(crate) value: HeaderValue,
    /// The host in it, without the port.
    pub(crate) host: String,
}

impl TryFrom<String> for Origin {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let problem = || {
            format!(
                "{text:?} is no origin of a page: write a scheme, a host, and a port unless it is the scheme's own, in \
                 lower case and with nothing behind, such as \"https://chat.example\" or \"http://localhost:3000\""
            )
        };
        let uri: Uri = text.parse().map_err(|_| problem())?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(problem());
        };
        let is_sent = format!("{scheme}://{authority}").to_ascii_lowercase() == text
            && is_host_with_port(authority)
            && !matches!(
                (scheme, authority.port_u16()),
                ("http", Some(80)) | ("https", Some(443))
            );
        match HeaderValue::from_str(&text) {
            Ok(value) if is_sent => Ok(Self {
                value,
                host: authority.host().to_owned(),
            }),
            _ => Err(problem()),
        }
    }
}

/// Returns `true` if there is a host without wildcards, and no user or port that cannot be.
fn is_host_with_port(authority: &Authority) -> bool {
    let host = authority.host();
    let is_of_host = |c: char| c.is_ascii_alphanumeric() || "-._[:]".contains(c);
    let rest = authority.as_str().strip_prefix(host);
    !host.is_empty()
        && host.chars().all(is_of_host)
        && rest.is_some_and(|rest| rest.is_empty() || authority.port_u16().is_some())
}
