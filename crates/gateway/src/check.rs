//! `triage-gateway check`: reads a configuration as a start would, and says what comes of it.

use std::fmt::Write;

use crate::args::CheckArgs;
use crate::config::{Config, process, scheme, unknown_capabilities};
use crate::descriptors::{self, Places};

/// Returns the report on the configuration, with its warnings. It starts nothing, and opens no address and no store.
pub(crate) fn check(args: &CheckArgs) -> Result<String, String> {
    let path = args.config.as_path();
    let mut config = Config::read(path, process).map_err(|error| error.to_string())?;
    config.listen = args.listen.unwrap_or(config.listen);
    if let Some(admin) = &config.admin
        && admin.listen == config.listen
        && admin.listen.port() != 0
    {
        let address = admin.listen;
        return Err(format!(
            "[admin] would listen on {address}, which is the address of clients: give it another `listen`"
        ));
    }
    let mut report = format!("{} is valid\n", path.display());
    descriptors::raise_limit(); // as a start does
    let too_low = Places::of(&config.server).warning(&config.server);
    for warning in config.warnings.iter().chain(&too_low) {
        _ = writeln!(report, "warning: {warning}"); // a string takes all
    }
    for note in config.swap.iter().flat_map(unknown_capabilities) {
        _ = writeln!(report, "note: [swap]: {note}");
    }
    _ = writeln!(
        report,
        "it would listen on {}://{}",
        scheme(config.certificate.as_ref()),
        config.listen
    );
    if let Some(admin) = &config.admin {
        _ = writeln!(
            report,
            "it would have its admin address on {}://{}",
            scheme(config.admin_certificate.as_ref()),
            admin.listen
        );
    }
    Ok(report)
}
