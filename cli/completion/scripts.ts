/**
 * Completion scripts of the shells. They contain no words of their own: all candidates come from `muster completion words`,
 * whose last line is `:files` when the shell should complete file names.
 */
export const scripts: Readonly<Record<string, string>> = {
  bash: `# Completion of muster for bash: source <(muster completion bash)
_muster() {
  local cur words cword line
  if declare -F _get_comp_words_by_ref >/dev/null; then
    _get_comp_words_by_ref -n =: cur words cword
  else
    words=("\${COMP_WORDS[@]}") cword=$COMP_CWORD cur=\${COMP_WORDS[COMP_CWORD]}
  fi
  COMPREPLY=()
  while IFS= read -r line; do
    if [ "$line" = :files ]; then
      compopt -o default 2>/dev/null
      while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$cur")
    else
      COMPREPLY+=("$line")
    fi
  done < <("\${words[0]}" completion words -- "\${words[@]:1:cword}" 2>/dev/null)
  # A key waits for its value.
  [[ \${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
  declare -F __ltrim_colon_completions >/dev/null && __ltrim_colon_completions "$cur"
  return 0
}
complete -F _muster muster
`,
  zsh: `#compdef muster
# Completion of muster for zsh: source <(muster completion zsh)
_muster() {
  local -a lines
  lines=("\${(@f)$("\${words[1]}" completion words -- "\${(@)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ "\${lines[-1]}" == ":files" ]]; then
    lines=("\${(@)lines[1,-2]}")
    _files
  fi
  compadd -- "\${(@)lines:#}"
}
if [ "$funcstack[1]" = _muster ]; then _muster "$@"; else compdef _muster muster; fi
`,
  fish: `# Completion of muster for fish: muster completion fish | source
function __muster_words
  set -l words (commandline --cut-at-cursor --tokenize)
  set -l current (commandline --cut-at-cursor --current-token)
  set -l lines ($words[1] completion words -- $words[2..-1] "$current" 2>/dev/null)
  for line in $lines
    if test "$line" = :files
      __fish_complete_path "$current"
    else
      echo $line
    end
  end
end
complete --command muster --no-files --arguments '(__muster_words)'
`,
};
