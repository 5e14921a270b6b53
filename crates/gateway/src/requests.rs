//! `triage-gateway requests`: asks a running gateway about its stored requests, and prints what it says as a table.

mod table;
mod time;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Method, Request, Uri};
use http_body_util::{BodyExt, Full};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use tower_triage_durable::RequestStatus;

use crate::args::{Asked, ListArgs, RequestsArgs};
use crate::config::{Config, process};

/// The variable with the token for an address that is named on the command line, where all users of a machine could read it.
const TOKEN: &str = "TRIAGE_ADMIN_TOKEN";

/// Does what is asked, and returns what is to be printed.
pub(crate) async fn run(args: RequestsArgs) -> Result<String, String> {
    let gateway = match &args.config {
        Some(path) => Admin::of(path)?,
        None => Admin::at(&args.admin)?,
    };
    Ok(match args.asked {
        Asked::List(list) => table::list(&gateway.ask(Method::GET, &list_path(&list)).await?),
        Asked::Show { id } => {
            let path = format!("/admin/requests/{id}");
            table::request(&gateway.ask(Method::GET, &path).await?)
        }
        Asked::Cancel { id } => {
            let path = format!("/admin/requests/{id}/cancel");
            table::state(&gateway.ask(Method::POST, &path).await?)
        }
        Asked::Retry { id } => {
            let path = format!("/admin/requests/{id}/retry");
            let request = gateway.ask(Method::POST, &path).await?;
            // The gateway leaves all others as they are.
            match request["status"]
                .as_str()
                .and_then(RequestStatus::from_name)
            {
                Some(status) if status.has_ended() => {
                    return Err(format!(
                        "{id} has {status}: only a request that has failed is retried"
                    ));
                }
                _ => table::state(&request),
            }
        }
    })
}

fn list_path(list: &ListArgs) -> String {
    let parameters = [
        ("status", list.status.map(|status| status.to_string())),
        ("tenant", list.tenant.clone()),
        ("limit", list.limit.map(|limit| limit.to_string())),
        ("after", list.after.map(|id| id.to_string())),
    ];
    let parameters = parameters.into_iter().filter_map(|(name, value)| {
        let value = value?;
        Some(format!(
            "{name}={}",
            utf8_percent_encode(&value, NON_ALPHANUMERIC)
        ))
    });
    let query = parameters.collect::<Vec<_>>().join("&");
    match query.is_empty() {
        true => "/admin/requests".to_owned(),
        false => format!("/admin/requests?{query}"),
    }
}

/// A gateway's address for operators.
struct Admin {
    url: String,
    token: Option<HeaderValue>,
}

impl Admin {
    /// The address of the gateway that runs with this configuration.
    fn of(path: &Path) -> Result<Self, String> {
        let config = Config::read(path, process).map_err(|error| error.to_string())?;
        let path = path.display();
        // Without [admin], the operator's pages are on the main address.
        let (listen, certificate, token) = match &config.admin {
            None => (config.listen, config.certificate, None),
            Some(admin) => (admin.listen, config.admin_certificate, admin.token.as_ref()),
        };
        if certificate.is_some() {
            return Err(format!(
                "{path}: the address has TLS, and its certificate is for a name: use --admin https://NAME:{}",
                listen.port()
            ));
        }
        if listen.port() == 0 {
            return Err(format!(
                "{path}: the port is 0, so it is not known which one the gateway has: use --admin"
            ));
        }
        Ok(Self {
            url: format!("http://{}", reachable(listen)),
            token: token.map(|token| bearer(token.as_bytes())).transpose()?,
        })
    }

    fn at(url: &Uri) -> Result<Self, String> {
        let token = process(TOKEN).map(|token| bearer(token.as_encoded_bytes()));
        Ok(Self {
            url: url.to_string().trim_end_matches('/').to_owned(),
            token: token.transpose()?,
        })
    }

    /// Returns the JSON of the response.
    async fn ask(&self, method: Method, path: &str) -> Result<Value, String> {
        let mut request = Request::new(Full::<Bytes>::default());
        *request.method_mut() = method;
        *request.uri_mut() = format!("{}{path}", self.url)
            .parse()
            .map_err(|error| format!("{}{path}: {error}", self.url))?;
        if let Some(token) = &self.token {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        let client = client(&self.url)?;
        let unreachable = |error: &dyn std::error::Error| {
            let cause = error
                .source()
                .map_or_else(String::new, |cause| format!(": {cause}"));
            format!(
                "cannot ask the gateway at {}: {error}{cause}; name the address of its [admin] by --admin or --config",
                self.url
            )
        };
        let response = client.request(request).await;
        let response = response.map_err(|error| unreachable(&error))?;
        let status = response.status();
        let body = response.into_body().collect().await;
        let body = body.map_err(|error| unreachable(&error))?.to_bytes();
        let json = serde_json::from_slice::<Value>(&body);
        match json {
            Ok(json) if status.is_success() => Ok(json),
            Ok(json) if json["error"]["message"].is_string() => {
                let message = json["error"]["message"].as_str().unwrap_or_default();
                let remedy = match json["error"]["code"].as_str() {
                    Some("request_not_found") => {
                        ": `triage-gateway requests ls` lists those that are known"
                    }
                    Some("unauthorized") => {
                        ": set TRIAGE_ADMIN_TOKEN, or name the gateway's file by --config"
                    }
                    _ => "",
                };
                Err(format!("{status}: {}{remedy}", table::printable(message)))
            }
            _ => Err(format!(
                "{} answered {status}, and is no gateway with [durable]",
                self.url
            )),
        }
    }
}

/// Returns a client for `url`. It trusts the roots of the system, which only TLS needs.
fn client(url: &str) -> Result<Client<HttpsConnector<HttpConnector>, Full<Bytes>>, String> {
    let builder = HttpsConnectorBuilder::new();
    let connector = match url.starts_with("https:") {
        true => builder.with_provider_and_native_roots(default_provider()),
        false => without_roots().map(|config| builder.with_tls_config(config)),
    };
    let connector = connector.map_err(|error| format!("{url}: {error}"))?;
    let connector = connector.https_or_http().enable_http1().build();
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

fn without_roots() -> io::Result<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder = builder.with_safe_default_protocol_versions();
    let builder = builder.map_err(io::Error::other)?;
    Ok(builder
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth())
}

fn bearer(token: &[u8]) -> Result<HeaderValue, String> {
    let value = [b"Bearer ", token].concat();
    let mut value = HeaderValue::from_bytes(&value)
        .map_err(|_| format!("{TOKEN} has a control character, which no token has"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns an address under which a server that listens on `listen` is reached from its machine.
fn reachable(mut listen: SocketAddr) -> SocketAddr {
    match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => listen.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => listen.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    listen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_become_an_encoded_query() {
        assert_eq!(list_path(&ListArgs::default()), "/admin/requests");
        let list = ListArgs {
            tenant: Some("a&b=é".to_owned()),
            limit: Some(5),
            ..ListArgs::default()
        };
        assert_eq!(
            list_path(&list),
            "/admin/requests?tenant=a%26b%3D%C3%A9&limit=5"
        );
    }

    #[test]
    fn server_of_all_addresses_is_reached_by_loopback() {
        for (listen, reached) in [
            ("0.0.0.0:1", "127.0.0.1:1"),
            ("[::]:2", "[::1]:2"),
            ("192.0.2.1:3", "192.0.2.1:3"),
        ] {
            let listen: SocketAddr = listen.parse().unwrap();
            assert_eq!(reachable(listen).to_string(), reached);
        }
    }
}
