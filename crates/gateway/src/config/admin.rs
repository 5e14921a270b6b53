//! The `[admin]` section: an address of its own for what only operators may see and do.

use std::fmt;
use std::net::SocketAddr;

use serde::de::{Deserialize, Deserializer, Error};

use super::Environment;
use super::certificate::TlsFiles;
use super::expand::{InvalidReference, expand};

/// The section as it is written, before variables are expanded.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AdminSection {
    #[serde(default = "default_listen", deserialize_with = "super::listen")]
    listen: SocketAddr,
    #[serde(default, deserialize_with = "token")]
    token: Option<String>,
    /// They are taken out when they are read.
    pub(super) tls: Option<TlsFiles>,
}

/// Where `/metrics` and `/admin/` are served, and what they ask for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct AdminConfig {
    pub(crate) listen: SocketAddr,
    pub(crate) token: Option<Token>,
}

/// A bearer token. It is never shown.
#[derive(Clone, PartialEq)]
pub(crate) struct Token(String);

#[derive(Debug, thiserror::Error)]
pub(crate) enum InvalidAdmin {
    #[error("`token` {0}")]
    Reference(InvalidReference),
    #[error("`token` is empty, or has a space or a character that is not ASCII")]
    Characters,
    #[error(
        "`listen` is {0}, which other machines may reach: set `token`, such as \"${{ADMIN_TOKEN}}\", or listen on \
         127.0.0.1"
    )]
    Open(SocketAddr),
}

impl AdminSection {
    pub(super) fn load(&self, environment: Environment) -> Result<AdminConfig, InvalidAdmin> {
        let token = match &self.token {
            None if self.listen.ip().to_canonical().is_loopback() => None,
            None => return Err(InvalidAdmin::Open(self.listen)),
            Some(text) => Some(Token::new(
                expand(text, environment).map_err(InvalidAdmin::Reference)?,
            )?),
        };
        Ok(AdminConfig {
            listen: self.listen,
            token,
        })
    }
}

impl Token {
    fn new(token: String) -> Result<Self, InvalidAdmin> {
        // Other characters could not be sent, or would be trimmed on the way.
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(InvalidAdmin::Characters);
        }
        Ok(Self(token))
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Written by hand, because errors of a derived impl show the invalid value.
fn token<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    match toml::Value::deserialize(deserializer)? {
        toml::Value::String(text) => Ok(Some(text)),
        _ => Err(D::Error::custom("the token must be a string")),
    }
}

fn default_listen() -> SocketAddr {
    ([127, 0, 0, 1], 8081).into()
}
