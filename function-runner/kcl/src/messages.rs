//! The messages of KCL's service, with the fields in use. Their numbers are those of KCL's `spec.proto`.

use std::ffi::CStr;

use prost::Message;

/// A method of the service.
pub(crate) trait Method: Message {
    /// The name of the method.
    const NAME: &'static CStr;
    /// The message of its reply.
    type Reply: Message + Default;
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExecProgramArgs {
    #[prost(string, tag = "1")]
    pub(crate) work_dir: String,
    #[prost(string, repeated, tag = "2")]
    pub(crate) k_filename_list: Vec<String>,
    #[prost(message, repeated, tag = "4")]
    pub(crate) args: Vec<Argument>,
    #[prost(string, repeated, tag = "5")]
    pub(crate) overrides: Vec<String>,
    #[prost(bool, tag = "8")]
    pub(crate) strict_range_check: bool,
    #[prost(bool, tag = "9")]
    pub(crate) disable_none: bool,
    #[prost(bool, tag = "12")]
    pub(crate) sort_keys: bool,
    #[prost(message, repeated, tag = "13")]
    pub(crate) external_pkgs: Vec<ExternalPackage>,
    #[prost(bool, tag = "14")]
    pub(crate) include_schema_type_path: bool,
    #[prost(bool, tag = "16")]
    pub(crate) show_hidden: bool,
    #[prost(string, repeated, tag = "17")]
    pub(crate) path_selector: Vec<String>,
    #[prost(string, tag = "19")]
    pub(crate) error_format: String,
    #[prost(string, tag = "20")]
    pub(crate) format: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Argument {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) value: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExternalPackage {
    #[prost(string, tag = "1")]
    pub(crate) pkg_name: String,
    #[prost(string, tag = "2")]
    pub(crate) pkg_path: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExecProgramResult {
    #[prost(string, tag = "1")]
    pub(crate) json_result: String,
    #[prost(string, tag = "2")]
    pub(crate) yaml_result: String,
    #[prost(string, tag = "3")]
    pub(crate) log_message: String,
    #[prost(string, tag = "4")]
    pub(crate) err_message: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ParseProgramArgs {
    #[prost(string, repeated, tag = "1")]
    pub(crate) paths: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) external_pkgs: Vec<ExternalPackage>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ListOptionsResult {
    #[prost(message, repeated, tag = "2")]
    pub(crate) options: Vec<DeclaredOption>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeclaredOption {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) r#type: String,
    #[prost(bool, tag = "3")]
    pub(crate) required: bool,
    #[prost(string, tag = "4")]
    pub(crate) default_value: String,
    #[prost(string, tag = "5")]
    pub(crate) help: String,
}

impl Method for ExecProgramArgs {
    const NAME: &'static CStr = c"KclService.ExecProgram";
    type Reply = ExecProgramResult;
}

impl Method for ParseProgramArgs {
    const NAME: &'static CStr = c"KclService.ListOptions";
    type Reply = ListOptionsResult;
}
