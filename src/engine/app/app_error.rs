//! Reasons for which the engine cannot be created.

use std::io;

use domain::crypto::sealing::SealError;
use store::StoreError;

use super::VaultError;

/// Reason for which the engine cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The stored secrets cannot be opened.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The store cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The secret of run tokens cannot be derived.
    #[error(transparent)]
    RunTokens(#[from] SealError),
    /// An HTTP client cannot be created.
    #[error("{0}")]
    Client(String),
}

impl AppError {
    /// Whether the key of the stored secrets is wrong or missing, so that an operator must act.
    pub fn needs_key(&self) -> bool {
        match self {
            AppError::Vault(VaultError::Key(error)) => *error == SealError::InvalidKey,
            AppError::Vault(VaultError::Locked(..)) => true,
            AppError::Vault(VaultError::Store(StoreError::Open { cause, .. })) => {
                cause.kind() == io::ErrorKind::NotFound
            }
            _ => false,
        }
    }

    /// Error of the store or of the key file beside it.
    pub fn store_error(&self) -> Option<&StoreError> {
        match self {
            AppError::Store(error) | AppError::Vault(VaultError::Store(error)) => Some(error),
            _ => None,
        }
    }
}
