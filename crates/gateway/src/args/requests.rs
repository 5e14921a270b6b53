//! The arguments of `triage-gateway requests`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::builder::TypedValueParser as _;
use clap::{Args, Subcommand};
use http::Uri;
use tower_triage_durable::{RequestId, RequestStatus};

const AFTER_HELP: &str = "\
Environment:
  TRIAGE_ADMIN_TOKEN  token for --admin
  SSL_CERT_FILE       roots in PEM that are trusted for https://, instead of the system's

Exit status: 0 if it was done, 1 if not, 2 for an invalid command line.";

#[derive(Debug, PartialEq, Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct RequestsArgs {
    #[command(subcommand)]
    pub(crate) asked: Asked,
    /// Ask the gateway that runs with this configuration: its [admin] address, with its token.
    #[arg(long, value_name = "FILE", global = true, conflicts_with = "admin")]
    pub(crate) config: Option<PathBuf>,
    /// Ask the gateway with this [admin] address.
    #[arg(long, value_name = "URL", global = true, value_parser = admin_url)]
    #[arg(default_value = "http://127.0.0.1:8081")]
    pub(crate) admin: Uri,
}

#[derive(Debug, PartialEq, Subcommand)]
pub(crate) enum Asked {
    /// List requests, newest first.
    #[command(name = "ls")]
    List(ListArgs),
    /// Show a request with all that is known of it.
    Show { id: RequestId },
    /// End a request that has not ended.
    Cancel { id: RequestId },
    /// Put a request that has failed back into its queue; its attempts count from 0 again.
    Retry { id: RequestId },
}

#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct ListArgs {
    /// Only requests with this status.
    #[arg(long, value_parser = status_parser())]
    pub(crate) status: Option<RequestStatus>,
    /// Only those of this tenant.
    #[arg(long)]
    pub(crate) tenant: Option<String>,
    /// At most that many, 1 to 100; 20 if it is not given.
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) limit: Option<u32>,
    /// Only those that are older than this one.
    #[arg(long, value_name = "ID")]
    pub(crate) after: Option<RequestId>,
}

fn status_parser() -> impl clap::builder::TypedValueParser<Value = RequestStatus> {
    let names = RequestStatus::ALL.map(RequestStatus::as_str);
    PossibleValuesParser::new(names)
        .try_map(|name| RequestStatus::from_name(&name).ok_or("it is no status"))
}

fn admin_url(text: &str) -> Result<Uri, &'static str> {
    let url = text.parse::<Uri>().ok();
    let url =
        url.filter(|url| matches!(url.scheme_str(), Some("http" | "https")) && url.path() == "/");
    url.ok_or("it must be http:// or https:// and an address, such as http://127.0.0.1:8081")
}

#[cfg(test)]
mod tests {
    use super::super::{Command, parsed};
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef";

    fn requests(line: &str) -> Result<RequestsArgs, String> {
        match parsed(&format!("requests {line}"))? {
            Command::Requests(args) => Ok(args),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn commands_and_filters_are_parsed() {
        let asked = |line: &str| requests(line).unwrap().asked;
        let id = ID.parse().unwrap();
        assert_eq!(asked("ls"), Asked::List(ListArgs::default()));
        let line = format!("ls --status failed --tenant a --limit 100 --after {ID}");
        let list = ListArgs {
            status: Some(RequestStatus::Failed),
            tenant: Some("a".to_owned()),
            limit: Some(100),
            after: Some(id),
        };
        assert_eq!(asked(&line), Asked::List(list));
        assert_eq!(asked(&format!("show {ID}")), Asked::Show { id });
        assert_eq!(asked(&format!("cancel {ID}")), Asked::Cancel { id });
        let retry = format!("retry --config a {ID}");
        assert_eq!(asked(&retry), Asked::Retry { id });
    }

    #[test]
    fn gateway_is_named_by_configuration_or_address() {
        let gateway = |line: &str| {
            let args = requests(line).unwrap();
            (args.config, args.admin)
        };
        let default = Uri::from_static("http://127.0.0.1:8081");
        assert_eq!(gateway("ls"), (None, default.clone()));
        let config = gateway("ls --config a.toml");
        assert_eq!(config, (Some("a.toml".into()), default));
        let url = Uri::from_static("http://[::1]:9000/");
        assert_eq!(gateway("ls --admin http://[::1]:9000"), (None, url));
    }

    #[test]
    fn invalid_arguments_are_named() {
        let twice = format!("show {ID} {ID}");
        for (line, problem) in [
            ("", "ls"),
            ("list", "'list'"),
            ("show", "<ID>"),
            ("retry abc", "'abc'"),
            ("cancel --status failed", "'--status'"),
            ("ls x", "'x'"),
            ("ls --status done", "queued, starting"),
            ("ls --status", "--status <STATUS>"),
            ("ls --limit 0", "1..=100"),
            ("ls --limit 101", "1..=100"),
            ("ls --after 1", "not the id of a request"),
            ("ls --admin 127.0.0.1:8081", "such as http://127.0.0.1:8081"),
            ("ls --admin ftp://a", "'ftp://a'"),
            ("ls --config a --admin http://a", "cannot be used with"),
            (twice.as_str(), "unexpected argument"),
        ] {
            let error = requests(line).unwrap_err();
            assert!(error.contains(problem), "{line}\n{error}");
        }
    }
}
