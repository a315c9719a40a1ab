//! Calls about fleets: templates and proposals.

use std::sync::Arc;

use stoa_proto::{
    ExecuteTemplatesRequest, ExecuteTemplatesResponse, ProposeFilesRequest, ProposeFilesResponse,
    fleet_client::FleetClient,
};
use tonic::{Status, transport::Channel};

use super::{
    Runner,
    pool::{Lent, MAX_MESSAGE},
};

fn fleet(lent: &Lent) -> FleetClient<Channel> {
    FleetClient::new(lent.channel()).max_decoding_message_size(MAX_MESSAGE).max_encoding_message_size(MAX_MESSAGE)
}

impl Runner {
    /// Executes templates on data.
    ///
    /// # Errors
    ///
    /// The error of the last function-runner that was asked.
    pub async fn execute_templates(
        &self,
        request: ExecuteTemplatesRequest,
    ) -> Result<ExecuteTemplatesResponse, Status> {
        let request = Arc::new(request);
        let call = |lent: &Lent, request: Arc<ExecuteTemplatesRequest>| {
            let mut client = fleet(lent);
            async move { client.execute_templates(ExecuteTemplatesRequest::clone(&request)).await }
        };
        Ok(Self::ask(self.search("ExecuteTemplates", None), request, call).await?.into_inner())
    }

    /// Compares files with a branch, and commits the difference to another branch.
    ///
    /// # Errors
    ///
    /// As [`execute_templates`](Self::execute_templates).
    pub async fn propose_files(&self, request: ProposeFilesRequest) -> Result<ProposeFilesResponse, Status> {
        let request = Arc::new(request);
        let call = |lent: &Lent, request: Arc<ProposeFilesRequest>| {
            let mut client = fleet(lent);
            async move { client.propose_files(ProposeFilesRequest::clone(&request)).await }
        };
        Ok(Self::ask(self.search("ProposeFiles", None), request, call).await?.into_inner())
    }
}
