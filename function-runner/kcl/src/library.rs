//! The C interface of KCL's shared object. All unsafe code of the crate is here.
//!
//! The interface is not safe for threads, so a [`Library`] stays on its thread, and a process has one.

#![expect(unsafe_code, reason = "the library is an object of C")]

use std::ffi::{CStr, CString, c_char, c_void};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::{mem, slice};

type New = unsafe extern "C" fn(u64) -> *mut c_void;
type Call = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char, usize, *mut usize) -> *mut c_char;
type Free = unsafe extern "C" fn(*mut c_char);
type Delete = unsafe extern "C" fn(*mut c_void);

/// The number that stands for no plugin agent.
const NO_PLUGINS: u64 = 0;

/// Why the library is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The path has a NUL.
    #[error("the path {} has a NUL", .0.display())]
    Path(PathBuf),
    /// The loader rejects the object.
    #[error("loading {}: {reason}", path.display())]
    Load {
        /// The object.
        path: PathBuf,
        /// The loader's reason.
        reason: String,
    },
    /// The object has no function of this name.
    #[error("{} has no function {name}; it is not KCL's library", path.display())]
    Function {
        /// The object.
        path: PathBuf,
        /// The name.
        name: &'static str,
    },
    /// The library made no service.
    #[error("KCL's library started no service")]
    Service,
}

/// The loaded library, with its service.
#[derive(Debug)]
pub(crate) struct Library {
    service: NonNull<c_void>,
    call: Call,
    free: Free,
    delete: Delete,
}

impl Library {
    /// Loads an object of [`without_python`](crate::without_python). It stays loaded until the process ends.
    pub(crate) fn load(path: &Path) -> Result<Self, LoadError> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| LoadError::Path(path.to_owned()))?;
        // SAFETY: the name ends with NUL. The object's initializers are those of KCL, whose checksum the runner verified.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let handle = NonNull::new(handle).ok_or_else(|| LoadError::Load { path: path.to_owned(), reason: reason() })?;
        let function = |name: &'static CStr| {
            // SAFETY: the handle is that of a loaded object, and the name ends with NUL.
            let found = unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) };
            let missing = || LoadError::Function { path: path.to_owned(), name: name.to_str().unwrap_or_default() };
            NonNull::new(found).map(NonNull::as_ptr).ok_or_else(missing)
        };
        // SAFETY: these functions of KCL's C interface have these types, and pointers to functions are as large as to data.
        let (new, call, free, delete) = unsafe {
            (
                mem::transmute::<*mut c_void, New>(function(c"kcl_service_new")?),
                mem::transmute::<*mut c_void, Call>(function(c"kcl_service_call_with_length")?),
                mem::transmute::<*mut c_void, Free>(function(c"kcl_service_free_string")?),
                mem::transmute::<*mut c_void, Delete>(function(c"kcl_service_delete")?),
            )
        };
        // SAFETY: the function takes any number.
        let service = NonNull::new(unsafe { new(NO_PLUGINS) }).ok_or(LoadError::Service)?;
        Ok(Self { service, call, free, delete })
    }

    /// Calls a method of the service with an encoded message. The reply is an encoded message, or a text after `ERROR:`.
    pub(crate) fn call(&mut self, method: &CStr, arguments: &[u8]) -> Vec<u8> {
        let mut length: usize = 0;
        // SAFETY: the service lives as long as this value, and one call is under way at a time. The method ends with NUL, the
        // arguments have the length, and the length of the reply has a position.
        let reply = unsafe {
            (self.call)(
                self.service.as_ptr(),
                method.as_ptr(),
                arguments.as_ptr().cast(),
                arguments.len(),
                &raw mut length,
            )
        };
        if reply.is_null() {
            return Vec::new();
        }
        if length == 0 {
            // Some failures set no length.
            // SAFETY: every reply ends with NUL.
            length = unsafe { CStr::from_ptr(reply) }.count_bytes();
        }
        // SAFETY: the reply has so many bytes, and lives until it is freed.
        let bytes = unsafe { slice::from_raw_parts(reply.cast::<u8>(), length) }.to_vec();
        // SAFETY: the reply is that of the call, and is freed once. Its allocator is the system's, which ignores the size.
        unsafe { (self.free)(reply) };
        bytes
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: the service is that of this value, which deletes it once.
        unsafe { (self.delete)(self.service.as_ptr()) };
    }
}

/// The loader's last error.
fn reason() -> String {
    // SAFETY: the function has no precondition.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "the loader gives no reason".to_owned();
    }
    // SAFETY: the text ends with NUL, and lives until the next call of the loader on this thread.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_objects_are_rejected() {
        let load = |path: &str| Library::load(Path::new(path)).unwrap_err().to_string();
        assert!(load("/nowhere/kcl.so").starts_with("loading /nowhere/kcl.so: "), "{}", load("/nowhere/kcl.so"));
        assert_eq!(load("libc.so.6"), "libc.so.6 has no function kcl_service_new; it is not KCL's library");
        assert_eq!(load("a\0b"), "the path a\0b has a NUL");
    }
}
