//! The arguments of `gateway requests`.

use std::path::PathBuf;
use std::str::FromStr;

use http::Uri;
use tower_triage::durable::{RequestId, RequestStatus};

use super::given::Given;

pub(super) const USAGE: &str = "\
Lists, shows, cancels and retries stored requests of a running gateway with [durable].

Usage: gateway requests ls [--status STATUS] [--tenant TENANT] [--limit NUMBER] [--after ID]
       gateway requests show ID
       gateway requests cancel ID
       gateway requests retry ID

  ls                list requests, newest first
  show              show a request with all that is known of it
  cancel            end a request that has not ended
  retry             put a request that has failed back into its queue; its attempts count from 0 again
  --status STATUS   only those that are queued, starting, processing, succeeded, failed, canceled or aborted
  --tenant TENANT   only those of this tenant
  --limit NUMBER    1 to 100; default 20
  --after ID        only those that are older than this one
  --config FILE     ask the gateway that runs with this configuration: its [admin] address, with its token
  --admin URL       ask this address; default http://127.0.0.1:8081

Environment
  TRIAGE_ADMIN_TOKEN   token for --admin
  SSL_CERT_FILE        roots in PEM that are trusted for https://, instead of the system's

Exit status: 0 if it was done, 1 if not, 2 for an invalid command line.
";

#[derive(Debug, PartialEq)]
pub(crate) struct RequestsArgs {
    pub(crate) asked: Asked,
    pub(crate) gateway: AdminAddress,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Asked {
    List(ListArgs),
    Show(RequestId),
    Cancel(RequestId),
    Retry(RequestId),
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct ListArgs {
    pub(crate) status: Option<RequestStatus>,
    pub(crate) tenant: Option<String>,
    pub(crate) limit: Option<u32>,
    pub(crate) after: Option<RequestId>,
}

/// The gateway that is asked.
#[derive(Debug, PartialEq)]
pub(crate) enum AdminAddress {
    /// That of a configuration.
    Config(PathBuf),
    Url(Uri),
}

/// `None` if the arguments ask for help.
pub(super) fn parse(
    mut args: Given<impl Iterator<Item = String>>,
) -> Result<Option<RequestsArgs>, String> {
    let command = args.next()?;
    let command = command.ok_or("ls, show, cancel or retry is missing")?;
    match &*command {
        "ls" | "show" | "cancel" | "retry" => {}
        "--help" | "-h" => return Ok(None),
        other => {
            let allowed = "allowed are ls, show, cancel and retry";
            return Err(format!("{other:?} is unknown: {allowed}"));
        }
    }
    let mut list = ListArgs::default();
    let mut id = None;
    let mut gateway = None;
    let is_list = command == "ls";
    while let Some(arg) = args.next()? {
        if matches!(arg.as_str(), "--help" | "-h") {
            return Ok(None);
        }
        if !arg.starts_with('-') && !is_list && id.is_none() {
            id = Some(request_id(&arg)?);
            continue;
        }
        let mut value = || args.value(&arg);
        match arg.as_str() {
            "--config" => set_once(&mut gateway, AdminAddress::Config(value()?.into()))?,
            "--admin" => set_once(&mut gateway, AdminAddress::Url(admin_url(&value()?)?))?,
            "--status" if is_list => list.status = Some(status(&value()?)?),
            "--tenant" if is_list => list.tenant = Some(value()?),
            "--limit" if is_list => list.limit = Some(limit(&value()?)?),
            "--after" if is_list => list.after = Some(request_id(&value()?)?),
            _ => {
                let allowed = match is_list {
                    true => "--status, --tenant, --limit, --after, ",
                    false => "one id, ",
                };
                return Err(format!(
                    "unknown argument {arg:?}: allowed are {allowed}--config, --admin and --help"
                ));
            }
        }
    }
    let id = || id.ok_or_else(|| format!("{command} needs the id of a request"));
    let asked = match &*command {
        "show" => Asked::Show(id()?),
        "cancel" => Asked::Cancel(id()?),
        "retry" => Asked::Retry(id()?),
        _ => Asked::List(list),
    };
    let default = || AdminAddress::Url(Uri::from_static("http://127.0.0.1:8081"));
    Ok(Some(RequestsArgs {
        asked,
        gateway: gateway.unwrap_or_else(default),
    }))
}

fn set_once(gateway: &mut Option<AdminAddress>, address: AdminAddress) -> Result<(), String> {
    match gateway.replace(address) {
        None => Ok(()),
        Some(_) => Err("--config and --admin name one gateway: use one of them, once".to_owned()),
    }
}

fn request_id(text: &str) -> Result<RequestId, String> {
    RequestId::from_str(text).map_err(|error| format!("{text:?} is {error}"))
}

fn status(text: &str) -> Result<RequestStatus, String> {
    RequestStatus::from_name(text).ok_or_else(|| {
        let names = RequestStatus::ALL.map(RequestStatus::as_str).join(", ");
        format!("--status is {text:?}: it must be one of {names}")
    })
}

fn limit(text: &str) -> Result<u32, String> {
    let limit = text.parse().ok().filter(|limit| (1..=100).contains(limit));
    limit.ok_or_else(|| format!("--limit is {text:?}: it must be a whole number from 1 to 100"))
}

fn admin_url(text: &str) -> Result<Uri, String> {
    let url = text.parse::<Uri>().ok();
    let url =
        url.filter(|url| matches!(url.scheme_str(), Some("http" | "https")) && url.path() == "/");
    url.ok_or_else(|| {
        format!(
            "--admin is {text:?}: it must be http:// or https:// and an address, such as http://127.0.0.1:8081"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef";

    fn parsed(line: &str) -> Result<Option<RequestsArgs>, String> {
        parse(Given::new(line.split_whitespace().map(str::to_owned)))
    }

    #[test]
    fn commands_and_filters_are_parsed() {
        let asked = |line: &str| parsed(line).unwrap().unwrap().asked;
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
        assert_eq!(asked(&format!("show {ID}")), Asked::Show(id));
        assert_eq!(asked(&format!("cancel {ID}")), Asked::Cancel(id));
        assert_eq!(asked(&format!("retry --config a {ID}")), Asked::Retry(id));
        for line in ["--help", "ls --help", "show -h"] {
            assert_eq!(parsed(line), Ok(None), "{line}");
        }
    }

    #[test]
    fn gateway_is_named_by_configuration_or_address() {
        let gateway = |line: &str| parsed(line).unwrap().unwrap().gateway;
        assert_eq!(
            gateway("ls"),
            AdminAddress::Url(Uri::from_static("http://127.0.0.1:8081"))
        );
        assert_eq!(
            gateway("ls --config a.toml"),
            AdminAddress::Config("a.toml".into())
        );
        let url = Uri::from_static("http://[::1]:9000/");
        assert_eq!(
            gateway("ls --admin http://[::1]:9000"),
            AdminAddress::Url(url)
        );
    }

    #[test]
    fn invalid_arguments_are_named() {
        let both = "ls --config a --admin http://a";
        for (line, problem) in [
            ("", "ls, show, cancel or retry is missing"),
            (
                "list",
                "\"list\" is unknown: allowed are ls, show, cancel and retry",
            ),
            ("show", "show needs the id of a request"),
            ("retry abc", "\"abc\" is not the id of a request"),
            ("cancel --status failed", "unknown argument \"--status\""),
            ("ls x", "unknown argument \"x\""),
            (
                "ls --status done",
                "--status is \"done\": it must be one of queued, starting",
            ),
            ("ls --status", "--status needs a value"),
            ("ls --limit 0", "--limit is \"0\""),
            ("ls --limit 101", "--limit is \"101\""),
            ("ls --after 1", "\"1\" is not the id of a request"),
            ("ls --admin 127.0.0.1:8081", "--admin is \"127.0.0.1:8081\""),
            ("ls --admin ftp://a", "--admin is \"ftp://a\""),
            (both, "use one of them"),
        ] {
            let error = parsed(line).unwrap_err();
            assert!(error.contains(problem), "{line}\n{error}");
        }
        let twice = parsed(&format!("show {ID} {ID}")).unwrap_err();
        assert!(twice.contains("unknown argument"), "{twice}");
    }
}
