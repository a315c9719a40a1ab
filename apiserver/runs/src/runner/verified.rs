//! Calls about commits that need a signature: the answers say whether the runner verified it.

use stoa_proto::{
    GenerateRequest, GenerateResponse, ReadFileRequest, ReadFileResponse, ResolveRequest, ResolveResponse,
};
use tonic::{Response, Status};

use super::Runner;

impl Runner {
    /// The commit of a version of a source.
    ///
    /// # Errors
    ///
    /// The error of the last function-runner that was asked.
    pub async fn resolve(&self, request: ResolveRequest) -> Result<Response<ResolveResponse>, Status> {
        let source = request.source.clone();
        let answer = self.any_resolve(request).await?;
        require(source.as_ref(), !answer.get_ref().signed_by.is_empty())?;
        Ok(answer)
    }

    /// One file of a commit.
    ///
    /// # Errors
    ///
    /// The error of the last function-runner that was asked.
    pub async fn read_file(&self, request: ReadFileRequest) -> Result<Response<ReadFileResponse>, Status> {
        let source = request.source.clone();
        let answer = self.any_read_file(request).await?;
        require(source.as_ref(), answer.get_ref().is_verified)?;
        Ok(answer)
    }

    /// The Spec of a stack at a commit.
    ///
    /// # Errors
    ///
    /// The error of the last function-runner that was asked.
    pub async fn generate(&self, request: GenerateRequest) -> Result<Response<GenerateResponse>, Status> {
        let source = request.source.clone();
        let answer = Box::pin(self.any_generate(request)).await?;
        require(source.as_ref(), answer.get_ref().is_verified)?;
        Ok(answer)
    }
}

/// Refuses the answer of a function-runner that verified no signature, though the source needs one. Earlier versions do not
/// know that.
///
/// # Errors
///
/// `UNAVAILABLE`: another runner may be newer.
pub(super) fn require(source: Option<&stoa_proto::Source>, is_verified: bool) -> Result<(), Status> {
    if is_verified || source.is_none_or(|source| source.verify.is_none()) {
        return Ok(());
    }
    let message = "the function-runner is older than the API server and verifies no signatures, which spec.verify of the \
                   Source needs; upgrade the function-runner";
    Err(Status::unavailable(message))
}

#[cfg(test)]
mod tests {
    use stoa_proto::{Source, Verification};

    use super::*;

    #[test]
    fn earlier_runners_answer_for_sources_without_keys_only() {
        let source = Source { verify: Some(Verification::default()), ..Source::default() };
        assert!(require(Some(&source), true).is_ok());
        assert!(require(Some(&Source::default()), false).is_ok() && require(None, false).is_ok());
        assert!(require(Some(&source), false).unwrap_err().message().contains("upgrade the function-runner"));
    }
}
