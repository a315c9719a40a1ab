//! WebAssembly: modules become code of this machine, and run with limits.
//!
//! Start at [`compile`] and [`run`]. Both use the same settings, without which the code is rejected.

use std::path::Path;

use wasmtime::{Config, Engine, Error, ExternType, Linker, Module, Store, Trap};

use crate::Failure;
use crate::wasi::{self, Exit, Wasi};

/// The stack of a function, in bytes. The thread's own has 8 MiB.
const STACK: usize = 2 << 20;

/// The function that a program of WASI begins with.
const START: &str = "_start";

fn engine() -> Result<Engine, Failure> {
    let mut config = Config::new();
    config.consume_fuel(true).max_wasm_stack(STACK);
    // Code that runs once gains nothing from pages that are copied on demand, and the sandbox has no anonymous files.
    config.memory_init_cow(false);
    // A trace of the module's own functions would hide the reason.
    config.wasm_backtrace_max_frames(None);
    Engine::new(&config).map_err(|error| Failure::Fault(format!("the machine of WebAssembly cannot start: {error:#}")))
}

/// Compiles a module.
///
/// # Errors
///
/// [`Failure::Function`] if the bytes are no module that [`run`] can start.
pub(crate) fn compile(bytes: &[u8]) -> Result<Vec<u8>, Failure> {
    let engine = engine()?;
    // Text forms have another reader, which is not built.
    let module = Module::new(&engine, bytes)
        .map_err(|error| Failure::Function(format!("the file is no valid WebAssembly module: {error:#}")))?;
    check(&module).map_err(Failure::Function)?;
    module.serialize().map_err(|error| Failure::Fault(format!("the compiled code cannot be written: {error:#}")))
}

/// Checks the imports and exports of a module.
fn check(module: &Module) -> Result<(), String> {
    if let Some(import) = module.imports().find(|import| import.module() != wasi::MODULE) {
        return Err(format!(
            "the module imports {}.{}, which no function gets; compile it for wasip1 (Go: GOOS=wasip1 GOARCH=wasm, Rust: wasm32-wasip1)",
            import.module(),
            import.name()
        ));
    }
    if let Some(import) = module.imports().find(|import| !matches!(import.ty(), ExternType::Func(_))) {
        return Err(format!("the module imports {}, which is no function of WASI", import.name()));
    }
    match module.get_export(START) {
        Some(ExternType::Func(of)) if of.params().len() == 0 && of.results().len() == 0 => Ok(()),
        _ => Err(format!("the module has no function {START}; compile it as a program, not as a library")),
    }
}

/// Runs compiled code, and returns its exit code.
///
/// # Errors
///
/// [`Failure::Fault`] at a limit, and when the code breaks a rule of its machine.
pub(crate) fn run(code: &Path, wasi: Wasi, fuel: u64) -> Result<u8, Failure> {
    let engine = engine()?;
    #[expect(unsafe_code, reason = "compiled code has no safe reader")]
    // SAFETY: only the runner writes this file, from the output of `compile`, in a folder of its own.
    let module = unsafe { Module::deserialize_file(&engine, code) };
    let module = module.map_err(|error| Failure::Fault(format!("the compiled code cannot be read: {error:#}")))?;
    start(&engine, &module, wasi, fuel)
}

fn start(engine: &Engine, module: &Module, wasi: Wasi, fuel: u64) -> Result<u8, Failure> {
    let failed = |error: &Error| Failure::Fault(format!("the module cannot start: {error:#}"));
    let mut linker = Linker::new(engine);
    wasi::add(&mut linker, module).map_err(|error| failed(&error))?;
    let mut store = Store::new(engine, wasi);
    store.limiter(Wasi::limits);
    store.set_fuel(fuel).map_err(|error| failed(&error))?;
    let instance = match linker.instantiate(&mut store, module) {
        Ok(instance) => instance,
        Err(error) => return ended(error, fuel),
    };
    let begin = instance.get_typed_func::<(), ()>(&mut store, START).map_err(|error| failed(&error))?;
    match begin.call(&mut store, ()) {
        Ok(()) => Ok(0),
        Err(error) => ended(error, fuel),
    }
}

/// The exit code of a module that ended in another way than by returning.
fn ended(error: Error, fuel: u64) -> Result<u8, Failure> {
    if let Some(Exit(code)) = error.downcast_ref::<Exit>() {
        // The kernel cuts exit codes in the same way, and no failure becomes a success.
        return Ok(u8::try_from(*code & 0xff).unwrap_or(1).max(u8::from(*code != 0)));
    }
    Err(Failure::Fault(match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => format!("the module ran more than {fuel} instructions; make its input smaller"),
        Some(Trap::StackOverflow) => format!("the module used more than {} MiB of stack", STACK >> 20),
        Some(trap) => format!("the module broke off: {trap}"),
        None => format!("the module broke off: {error:#}"),
    }))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    const FUEL: u64 = 1_000_000;
    const MEMORY: usize = 1 << 20;

    /// A module in its binary form, from sections.
    fn module(sections: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = b"\0asm\x01\0\0\0".to_vec();
        for (id, content) in sections {
            bytes.push(*id);
            bytes.push(u8::try_from(content.len()).unwrap());
            bytes.extend_from_slice(content);
        }
        bytes
    }

    /// A module whose `_start` has this body, with one function of WASI before it, and some memory.
    fn program(import: &str, body: &[u8]) -> Vec<u8> {
        let name = wasi::MODULE.as_bytes();
        let mut imports = vec![1, u8::try_from(name.len()).unwrap()];
        imports.extend_from_slice(name);
        imports.push(u8::try_from(import.len()).unwrap());
        imports.extend_from_slice(import.as_bytes());
        imports.extend_from_slice(&[0, 1]);
        let mut exports = vec![2, 6];
        exports.extend_from_slice(b"_start\0\x01\x06memory\x02\0");
        let mut code = vec![1, u8::try_from(body.len() + 2).unwrap(), 0];
        code.extend_from_slice(body);
        code.push(0x0b);
        module(&[
            // Types: () -> (), and (i32) -> ().
            (1, &[2, 0x60, 0, 0, 0x60, 1, 0x7f, 0]),
            (2, &imports),
            (3, &[1, 0]),
            (5, &[1, 0, 1]),
            (7, &exports),
            (10, &code),
        ])
    }

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Compiles and runs a module as two processes do.
    fn outcome(bytes: &[u8]) -> Result<u8, String> {
        let text = |failure: Failure| match failure {
            Failure::Function(message) => format!("function: {message}"),
            Failure::Fault(message) => format!("fault: {message}"),
        };
        let folder =
            std::env::temp_dir().join(format!("stoa-wasm-{}-{:?}", std::process::id(), std::thread::current().id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("code");
        std::fs::write(&file, compile(bytes).map_err(text)?).unwrap();
        let out = Shared::default();
        let wasi = Wasi::new(Box::new(std::io::empty()), Box::new(out.clone()), Box::new(out), MEMORY);
        let done = run(&file, wasi, FUEL).map_err(text);
        std::fs::remove_dir_all(&folder).unwrap();
        done
    }

    #[test]
    fn exit_code_is_that_of_the_module() {
        // i32.const 3, call 0
        assert_eq!(outcome(&program("proc_exit", &[0x41, 3, 0x10, 0])), Ok(3));
        assert_eq!(outcome(&program("proc_exit", &[])), Ok(0));
        // i32.const 256, call 0
        assert_eq!(outcome(&program("proc_exit", &[0x41, 0x80, 2, 0x10, 0])), Ok(1));
    }

    #[test]
    fn limits_end_a_module() {
        // loop, br 0, end
        let fuel = outcome(&program("proc_exit", &[0x03, 0x40, 0x0c, 0, 0x0b])).unwrap_err();
        assert!(fuel.starts_with("fault: the module ran more than 1000000 instructions"), "{fuel}");
        // call 1, which is itself
        let stack = outcome(&program("proc_exit", &[0x10, 1])).unwrap_err();
        assert!(stack.starts_with("fault: the module "), "{stack}");
        // i32.const 100, memory.grow, i32.const -1, i32.ne, if, unreachable, end
        let memory =
            outcome(&program("proc_exit", &[0x41, 0xe4, 0, 0x40, 0, 0x41, 0x7f, 0x47, 0x04, 0x40, 0x00, 0x0b, 0x0b]));
        assert_eq!(memory, Ok(0), "the memory did not grow");
        // unreachable
        let trap = outcome(&program("proc_exit", &[0x00])).unwrap_err();
        assert!(trap.contains("unreachable"), "{trap}");
    }

    #[test]
    fn fuzz_wasm_modules() {
        // A module that is compiled imports nothing but functions of WASI, and has a function to begin with.
        stoa_fuzz::run::test("wasm_modules", |bytes| {
            if let Err(Failure::Function(message) | Failure::Fault(message)) = compile(bytes) {
                assert!(!message.is_empty());
            }
        });
    }

    #[test]
    fn modules_without_a_program_are_rejected() {
        for (bytes, message) in [
            (b"(module)".to_vec(), "function: the file is no valid WebAssembly module"),
            (module(&[]), "function: the module has no function _start"),
            (program("proc_exit", &[0x01])[..20].to_vec(), "function: the file is no valid WebAssembly module"),
        ] {
            let failed = outcome(&bytes).unwrap_err();
            assert!(failed.starts_with(message), "{failed}");
        }
        let mut gojs = program("proc_exit", &[]);
        let at = gojs.windows(4).position(|part| part == b"wasi").unwrap();
        gojs[at] = b'x';
        let failed = outcome(&gojs).unwrap_err();
        assert!(failed.contains("which no function gets"), "{failed}");
    }
}
