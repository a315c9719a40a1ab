//! The flags of the audit log.

use std::path::PathBuf;

use clap::Args;

use super::OptionsError;
use crate::audit::{LogFile, LogMode, LogOptions, Policy};

/// What is recorded of requests, and where.
#[derive(Clone, Debug, Args)]
pub struct AuditOptions {
    /// Audit policy, audit.k8s.io/v1; without it, the server records no audit events
    #[arg(long)]
    pub audit_policy_file: Option<PathBuf>,
    /// File of audit events, one JSON object a line; '-' is standard output
    #[arg(long)]
    pub audit_log_path: Option<PathBuf>,
    /// Days before a rotated audit log is deleted; 0 is never
    #[arg(long, default_value_t = 0)]
    pub audit_log_maxage: u64,
    /// Rotated audit logs to keep; 0 keeps all
    #[arg(long, default_value_t = 0)]
    pub audit_log_maxbackup: usize,
    /// Size of an audit log before its rotation, in megabytes; 0 is 100
    #[arg(long, default_value_t = 0)]
    pub audit_log_maxsize: u64,
    /// Whether requests wait until their audit events are written
    #[arg(long, value_enum, default_value_t)]
    pub audit_log_mode: LogMode,
}

impl AuditOptions {
    /// The policy and the log, when both are named.
    ///
    /// # Errors
    ///
    /// [`OptionsError`] of either, and when there is a log and no policy.
    pub fn open(&self) -> Result<Option<(Policy, LogFile)>, OptionsError> {
        let Some(path) = &self.audit_policy_file else {
            return if self.audit_log_path.is_some() { Err(OptionsError::NoAuditPolicy) } else { Ok(None) };
        };
        let policy =
            Policy::from_file(path).map_err(|source| OptionsError::AuditPolicy { path: path.clone(), source })?;
        let Some(log) = self.log() else { return Ok(None) };
        Ok(Some((policy, LogFile::open(log)?)))
    }

    fn log(&self) -> Option<LogOptions> {
        Some(LogOptions {
            path: self.audit_log_path.clone()?,
            mode: self.audit_log_mode,
            max_age_days: self.audit_log_maxage,
            max_backups: self.audit_log_maxbackup,
            max_megabytes: self.audit_log_maxsize,
        })
    }
}
