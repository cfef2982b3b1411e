//! The filter on system calls. A policy says what happens to a call that no rule names, and which calls are
//! the exceptions. Today the exceptions are refused; a policy whose exceptions are allowed is the same type
//! with the other default.
//!
//! Refused is what makes namespaces and mounts, looks into other processes, loads code into the kernel, or
//! reaches past the network namespace; and interfaces that have been the way out of sandboxes before.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// What happens to a call that is no exception, and to one that is.
struct Policy {
    otherwise: SeccompAction,
    exceptions: Rules,
    then: SeccompAction,
}

/// Refused whatever the arguments are.
const NEVER: &[libc::c_long] = &[
    // Mounts and roots.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    // Namespaces and other processes.
    libc::SYS_setns,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_process_mrelease,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_move_pages,
    libc::SYS_migrate_pages,
    // Code and keys in the kernel.
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    // Files behind the mounts' back, and what stalls the kernel or leaves the other filters aside.
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_fanotify_init,
    // The machine itself.
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_acct,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
];

#[cfg(target_arch = "x86_64")]
const NEVER_ON_THIS_MACHINE: &[libc::c_long] =
    &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt, libc::SYS_uselib, libc::SYS_ustat];
#[cfg(not(target_arch = "x86_64"))]
const NEVER_ON_THIS_MACHINE: &[libc::c_long] = &[];

const NEW_NAMESPACES: [libc::c_int; 8] = [
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWNS,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWCGROUP,
    // CLONE_NEWTIME (linux/sched.h), which unshare takes and clone does not: there the bit is a part of the
    // signal's number, of which none is that large.
    0x80,
];

/// Families that the network namespace contains. AF_VSOCK, for one, reaches the hypervisor from any.
const FAMILIES: [libc::c_int; 4] = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
/// What is left of them where there is no such namespace.
const LOCAL: [libc::c_int; 1] = [libc::AF_UNIX];

/// Puts words into the terminal that somebody else types in.
const TERMINAL_INJECTIONS: [u64; 2] = [0x5412 /* TIOCSTI */, 0x541C /* TIOCLINUX */];

/// Calls that set a file's mode, and which argument it is. A set-user-id file made inside does nothing there,
/// and on the host it would belong to the destination's owner, who may be root.
const MODES: &[(libc::c_long, u8)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
    (libc::SYS_mknodat, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_mknod, 1),
];

/// The same for calls where the mode means something under a flag only: the flags' argument, then the
/// mode's. What `openat2` is told stands in memory, where a filter cannot look; a file made by it is empty,
/// and loses the bit when it is written to or made longer.
const CONDITIONAL_MODES: &[(libc::c_long, u8, u8)] = &[
    (libc::SYS_openat, 2, 3),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 1, 2),
];

/// S_ISUID and S_ISGID.
const GIVES_ID: [u64; 2] = [0o4000, 0o2000];
/// O_CREAT, and the bit by which O_TMPFILE differs from O_DIRECTORY.
const CREATES: [u64; 2] = [0o100, 0o20_000_000];

/// Calls that change what another process may use, or when it is served, and which argument names the process.
/// The kernel asks for nothing but the same user, which the init is. One without descriptors, or served last,
/// never hears that it has to freeze.
const OF_ANOTHER: &[(libc::c_long, u8)] = &[
    (libc::SYS_prlimit64, 0),
    (libc::SYS_sched_setscheduler, 0),
    (libc::SYS_sched_setparam, 0),
    (libc::SYS_sched_setattr, 0),
    (libc::SYS_sched_setaffinity, 0),
    (libc::SYS_setpriority, 1),
    (libc::SYS_ioprio_set, 1),
];

/// Those of them whose first argument says what the second one names, and its value for all of a user's
/// processes: PRIO_USER, and IOPRIO_WHO_USER (linux/ioprio.h).
const OF_A_USER: [(libc::c_long, u64); 2] = [(libc::SYS_setpriority, 2), (libc::SYS_ioprio_set, 3)];

/// Installs the filters on this process and all it starts. `own_namespaces`: there is nobody but the init and
/// the payload, and no network.
///
/// # Errors
/// Says what the kernel or the compiler of the filters objected to.
pub(crate) fn install(own_namespaces: bool) -> Result<String, String> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|error| error.to_string())?;
    let mut programs = vec![foreign_calls()];
    for policy in [refusals(own_namespaces)?, absences()] {
        programs.push(policy.compile(arch)?);
    }
    for program in programs.iter().filter(|program| !program.is_empty()) {
        seccompiler::apply_filter(program).map_err(|error| error.to_string())?;
    }
    let always = NEVER.len() + NEVER_ON_THIS_MACHINE.len();
    Ok(format!("a filter that refuses {always} calls always and others by their arguments"))
}

impl Policy {
    fn compile(self, arch: TargetArch) -> Result<BpfProgram, String> {
        let filter = SeccompFilter::new(self.exceptions, self.otherwise, self.then, arch);
        filter.and_then(TryInto::try_into).map_err(|error: seccompiler::BackendError| error.to_string())
    }
}

fn refusals(own_namespaces: bool) -> Result<Policy, String> {
    let families: &[libc::c_int] = if own_namespaces { &FAMILIES } else { &LOCAL };
    let mut exceptions: Rules =
        NEVER.iter().chain(NEVER_ON_THIS_MACHINE).map(|call| (*call, Vec::new())).collect();
    let bit = |flag: libc::c_int| {
        let flag = u64::try_from(flag).expect("flags are positive");
        when(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)
    };
    exceptions.insert(libc::SYS_unshare, each(NEW_NAMESPACES.into_iter().map(bit))?);
    exceptions.insert(libc::SYS_clone, each(NEW_NAMESPACES.into_iter().take(7).map(bit))?);
    let injections =
        TERMINAL_INJECTIONS.map(|request| when(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, request));
    exceptions.insert(libc::SYS_ioctl, each(injections)?);
    exceptions.insert(libc::SYS_socket, vec![other_families(families)?]);
    exceptions.insert(libc::SYS_socketpair, vec![other_families(families)?]);
    exceptions.extend(id_giving_modes()?);
    exceptions.extend(reaching_others(own_namespaces)?);
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    Ok(Policy { otherwise: SeccompAction::Allow, exceptions, then: refuse })
}

fn id_giving_modes() -> Result<Rules, String> {
    let bit = |argument, bit| when(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bit), bit);
    let mut rules = Rules::new();
    for (call, mode) in MODES {
        rules.insert(*call, each(GIVES_ID.map(|id| bit(*mode, id)))?);
    }
    for (call, flags, mode) in CONDITIONAL_MODES {
        let pairs = CREATES.iter().flat_map(|creates| GIVES_ID.map(|id| (*creates, id)));
        let rule = |(creates, id)| {
            let both = vec![bit(*flags, creates)?, bit(*mode, id)?];
            SeccompRule::new(both).map_err(|error| error.to_string())
        };
        rules.insert(*call, pairs.map(rule).collect::<Result<_, _>>()?);
    }
    Ok(rules)
}

/// In a pid namespace of its own everything but its first process is the payload's, and a C library names
/// threads by their ids where it could say 0. In the host's namespace every other id may be somebody else's.
fn reaching_others(own_namespaces: bool) -> Result<Rules, String> {
    let (comparison, id) = if own_namespaces { (SeccompCmpOp::Eq, 1) } else { (SeccompCmpOp::Ne, 0) };
    let mut rules = Rules::new();
    for (call, argument) in OF_ANOTHER {
        let other = when(*argument, SeccompCmpArgLen::Dword, comparison.clone(), id);
        rules.insert(*call, each([other])?);
    }
    for (call, user) in OF_A_USER {
        let all = when(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, user);
        rules.entry(call).or_default().extend(each([all])?);
    }
    Ok(rules)
}

/// clone3 hides its flags from a filter. A C library that is told it does not exist uses clone instead.
fn absences() -> Policy {
    let absent = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let exceptions = [(libc::SYS_clone3, Vec::new())].into();
    Policy { otherwise: SeccompAction::Allow, exceptions, then: absent }
}

fn when(
    argument: u8,
    length: SeccompCmpArgLen,
    comparison: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, String> {
    SeccompCondition::new(argument, length, comparison, value).map_err(|error| error.to_string())
}

/// One rule per condition: any of them suffices.
fn each(
    conditions: impl IntoIterator<Item = Result<SeccompCondition, String>>,
) -> Result<Vec<SeccompRule>, String> {
    let rule = |condition| SeccompRule::new(vec![condition?]).map_err(|error| error.to_string());
    conditions.into_iter().map(rule).collect()
}

/// One rule of many conditions: it is none of the known families.
fn other_families(known: &[libc::c_int]) -> Result<SeccompRule, String> {
    let differs = known.iter().map(|family| {
        let family = u64::try_from(*family).expect("families are positive");
        when(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, family)
    });
    SeccompRule::new(differs.collect::<Result<_, _>>()?).map_err(|error| error.to_string())
}

/// On x86_64 the same calls exist a second time under numbers with bit 30 set (x32), which the rules do not
/// name: none of those passes (linux/filter.h: load word at offset 0, the number; compare; return).
#[cfg(target_arch = "x86_64")]
fn foreign_calls() -> BpfProgram {
    const X32: u32 = 0x4000_0000;
    let refuse = u32::from(SeccompAction::Errno(libc::ENOSYS.cast_unsigned()));
    vec![
        sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 },
        sock_filter { code: 0x35, jt: 0, jf: 1, k: X32 },
        sock_filter { code: 0x06, jt: 0, jf: 0, k: refuse },
        sock_filter { code: 0x06, jt: 0, jf: 0, k: u32::from(SeccompAction::Allow) },
    ]
}

#[cfg(not(target_arch = "x86_64"))]
fn foreign_calls() -> BpfProgram {
    BpfProgram::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policies_compile_and_name_each_call_once() {
        let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a machine with filters");
        for policy in [refusals(true).expect("rules"), refusals(false).expect("rules"), absences()] {
            assert!(!policy.compile(arch).expect("compiles").is_empty());
        }
        let mut calls: Vec<_> = NEVER.iter().chain(NEVER_ON_THIS_MACHINE).collect();
        calls.sort_unstable();
        calls.dedup();
        assert_eq!(calls.len(), NEVER.len() + NEVER_ON_THIS_MACHINE.len());
    }
}
