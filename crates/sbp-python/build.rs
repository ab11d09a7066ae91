//! Links the library that `SBP_UNWINDER` names into the extension module: `make dist` says which, and why it is needed stands
//! in `unwinder/libgcc_s.c`.

fn main() {
    println!("cargo:rerun-if-env-changed=SBP_UNWINDER");
    if let Ok(library) = std::env::var("SBP_UNWINDER") {
        println!("cargo:rustc-cdylib-link-arg={library}");
    }
}
