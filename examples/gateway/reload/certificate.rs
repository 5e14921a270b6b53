//! The certificate of `[server] tls`, which its files may change without a reload.

use super::{Reload, in_thread};
use crate::config::Certificate;

impl Reload {
    /// Uses the certificate that the files have now.
    pub(super) async fn reread_certificate(&mut self) {
        let Some(certificate) = self.running.certificate.clone() else {
            return;
        };
        let problem = match in_thread(move || certificate.reread()).await {
            Ok(Ok(new)) => {
                if let Some(new) = new
                    && self.use_certificate(new)
                {
                    tracing::info!("{CHANGED}");
                }
                None
            }
            Ok(Err(problem)) => Some(problem.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if problem != self.certificate_problem {
            if let Some(problem) = &problem {
                tracing::error!("[server]: {problem}; the certificate stays as it was");
            }
            self.certificate_problem = problem;
        }
    }

    /// Uses `certificate` for new connections. Returns `true` if it is another one.
    pub(super) fn use_certificate(&mut self, certificate: Certificate) -> bool {
        let (Some(tls), Some(running)) = (&self.tls, &mut self.running.certificate) else {
            return false; // a restart turns TLS on
        };
        let is_other = !running.is_same(&certificate);
        tls.replace(&certificate);
        *running = certificate;
        is_other
    }
}

/// The line of the log for another certificate.
pub(super) const CHANGED: &str = "the certificate of [server] has changed";
