# Runs in an interactive bash as its PROMPT_COMMAND. An interrupt returns such a shell to its prompt, that is here, with
# all its state; that is how `exit`, `set -e` and a caller's interrupt end a cell and not the shell.
#
# Descriptor 0 is the cell's stderr, 1 its stdout, 2 leads nowhere: prompts and job notices are for nobody. While a cell
# runs, 50 to 52 are closed, so that neither it nor its children hold the channel.
\builtin declare +x PROMPT_COMMAND
exec 50>&1 51>&0 52>&3 3>&- </dev/null >/dev/null
\builtin unset MAILCHECK HISTFILE
\builtin shopt -s execfail
PS1= PS2= __cell_number= __cell_status= __cell_stop= __cell_code=

# Ends the cell from anywhere, with a status.
__cell_end() {
  __cell_status=$1
  \builtin trap - INT
  PROMPT_COMMAND=$__cell_loop
  \builtin kill -INT $$
}

__cell_do() { \builtin eval "$1"; }

# In a subshell it is the real one.
exit() {
  \builtin set -- "${1-$?}"
  if ((BASH_SUBSHELL)); then \builtin exit "$1"; fi
  if ! [[ $1 =~ ^-?[0-9]+$ ]]; then
    \builtin printf 'bash: exit: %s: numeric argument required\n' "$1" >&2
    \builtin set -- 2
  fi
  # Handlers for the exit of the shell run at the exit of the cell.
  __cell_code=$(\builtin trap -p EXIT)
  \builtin trap - EXIT
  if [[ -n $__cell_code ]]; then \builtin eval "__cell_do ${__cell_code#trap -- }"; fi
  __cell_end $(($1 & 255))
}

# With `set -e` a failing command ends the cell; without this it would end the shell.
__cell_failed() {
  if [[ $1 == *e* ]] && ((BASH_SUBSHELL == 0)); then __cell_end "$2"; fi
}

# Reports the end of the previous cell, and reads the next one. An interrupt during the read must not cut it short; it
# counts only once the number has arrived, since an earlier one was meant for the previous cell.
__cell_next() {
  if [[ -n $__cell_number ]]; then
    \builtin printf 'd{"cell":%s,"code":%s}\n' "$__cell_number" "${__cell_status:-$1}" >&52
  fi
  \builtin trap '__cell_stop=1' INT
  while :; do
    PROMPT_COMMAND=$__cell_loop __cell_number= __cell_status=
    TMOUT= IFS= \builtin read -r -d '' -u 52 __cell_number || \builtin exit 0
    __cell_stop=
    TMOUT= IFS= \builtin read -r -d '' -u 52 __cell_code || \builtin exit 0
    if [[ -z $__cell_stop ]]; then break; fi
    \builtin printf 'd{"cell":%s,"code":130}\n' "$__cell_number" >&52
  done
  \builtin trap - INT
}

# The code runs here and not in a function, so that its declarations stay. `eval` is on the second line: then lines are
# counted as the caller counts them. The braces make it one command, so that a fatal error (an unset variable with `set
# -u`) ends all of it. Nothing may follow `eval`: its status is the cell's.
__cell_loop='while __cell_next "$?"; do \builtin trap '\''__cell_failed "$-" "$?"'\'' ERR; \builtin set -E
\builtin eval "{ :;$__cell_code
}" </dev/null >&50 2>&51 50>&- 51>&- 52>&-; done'
PROMPT_COMMAND=$__cell_loop
\builtin printf 'i\n' >&52
# To the prompt.
\builtin kill -INT $$
