//! The limit of open descriptors: each request needs one for its client and one for its backend.

/// Raises the soft limit of this process to the hard one. The usual soft limit of 1024 is for programs that use `select`.
#[cfg(unix)]
pub(crate) fn raise_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current == maximum {
        return;
    }
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, ?current, ?maximum, "cannot raise the limit of open files");
    }
}

#[cfg(not(unix))]
pub(crate) fn raise_limit() {}
