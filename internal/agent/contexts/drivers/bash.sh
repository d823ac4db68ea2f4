# The driver of bash contexts: what a shell that reads cells line by line needs
# to know first. An interactive shell, because only such a one comes back after
# an interrupt, a syntax error or an unset variable, with its state as it was.
set +H +o history; PS1= PS2= PS4='+ '; unset MAILCHECK PROMPT_COMMAND HISTFILE; exec 7>&3 3>&-
__sunaba_begin() { builtin printf '{"op":"begin","n":%d}\n' "$1" >&7; }
__sunaba_end() { { builtin printf '{"op":"end","n":%d,"code":%d}\n' "$1" "$2" >&7; } 2>/dev/null; }
exit() { builtin exit "$@" 2>/dev/null; }
builtin printf '{"op":"ready","kernel":"bash %s"}\n' "${BASH_VERSION%%(*}" >&7
