// A file that appears under its name only when it is complete.
#ifndef AIT_PROBE_REPLACE_FILE_H
#define AIT_PROBE_REPLACE_FILE_H

#include <cstddef>
#include <cstdint>
#include <string>
#include <sys/uio.h>

#include "directories.h"

namespace ait {

class ReplaceFile {
public:
    // `temporary` is the name until the file is complete; without one, a name of its own.
    explicit ReplaceFile(Directories &directories, std::string temporary = "")
        : directories_(&directories), fixedName_(std::move(temporary))
    {
    }
    ~ReplaceFile() { Discard(); }
    ReplaceFile(const ReplaceFile &) = delete;
    ReplaceFile &operator=(const ReplaceFile &) = delete;

    // Each returns 0 or an errno; after an error the file is gone and `path` is as it was.
    int Create(const std::string &path, uint64_t expectedSize);
    int Write(const void *data, size_t size);
    int Write(iovec *parts, int count);
    int Commit();
    // Makes `path` a hard link to `existing` instead of what was written so far.
    int CommitLink(const std::string &existing);
    void Discard();

    // The incomplete file, readable, for comparing what was written with another file.
    int Descriptor() const { return fd_; }

private:
    int Fail();
    int Rename();

    Directories *directories_;
    std::string fixedName_;
    std::string path_;
    std::string directory_;
    std::string temporary_;
    int fd_ = -1;
    bool named_ = false;
};

// The whole content at once; 0 or an errno.
int ReplaceWith(Directories &directories, const std::string &path, const std::string &content);
int ReplaceWith(Directories &directories, const std::string &path, const void *data, size_t size);

} // namespace ait

#endif
