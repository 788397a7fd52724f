// Work with files where nobody else closes or is given descriptors.
#ifndef AIT_OWN_TABLE_H
#define AIT_OWN_TABLE_H

namespace ait {

// Runs `job(context)` on a thread that has a table of descriptors of its own, and waits for it. What the
// program does with its descriptors does not reach what the job opens, and the job holds nothing of the
// program open. Returns false, and has run nothing, where the system allows no such thread.
bool RunInOwnTable(void (*job)(void *), void *context);

} // namespace ait

#endif
