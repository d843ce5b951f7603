# Completes commands and options in bash and zsh. Use it in ~/.bashrc or ~/.zshrc: eval "$(palimpsest completion bash)"
# Django's command line prints the words if it finds these variables.
if [ -n "${ZSH_VERSION:-}" ]; then
  autoload -U +X compinit && compinit
  autoload -U +X bashcompinit && bashcompinit
fi
_palimpsest() {
  COMPREPLY=($(env DJANGO_AUTO_COMPLETE=1 COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD="$COMP_CWORD" "$1" 2>/dev/null))
}
complete -o default -F _palimpsest palimpsest manage.py
