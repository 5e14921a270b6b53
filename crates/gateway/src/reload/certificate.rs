//! The certificates of `tls`, which their files may change without a reload.

use super::{Reload, in_thread};
use crate::config::Config;

impl Reload {
    /// Uses the certificates that their files have now.
    pub(super) async fn reread_certificates(&mut self) {
        let mut problems = Vec::new();
        for tls in &self.tls {
            let certificate = tls.certificate();
            match in_thread(move || certificate.reread()).await {
                Ok(Ok(None)) => {}
                Ok(Ok(Some(new))) => {
                    tls.replace(new);
                    tracing::info!("{}", changed(tls.section()));
                }
                Ok(Err(problem)) => problems.push(format!("{}: {problem}", tls.section())),
                Err(error) => problems.push(format!("{}: {error}", tls.section())),
            }
        }
        if problems != self.certificate_problems {
            for problem in &problems {
                tracing::error!("{problem}; the certificate stays as it was");
            }
            self.certificate_problems = problems;
        }
    }

    /// Uses the certificates of `new` for new connections. Returns a line for each that is another one.
    pub(super) fn use_certificates(&self, new: &Config) -> Vec<String> {
        let changes = self.tls.iter().filter_map(|tls| {
            let mut all = new.certificates().into_iter();
            let (_, certificate) = all.find(|(section, _)| *section == tls.section())?;
            let certificate = certificate?.clone(); // a restart turns TLS off
            tls.replace(certificate).then(|| changed(tls.section()))
        });
        changes.collect()
    }
}

fn changed(section: &str) -> String {
    format!("the certificate of {section} has changed")
}
