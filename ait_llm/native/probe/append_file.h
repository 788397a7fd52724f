// A file that grows line by line and never holds half a line.
#ifndef AIT_PROBE_APPEND_FILE_H
#define AIT_PROBE_APPEND_FILE_H

#include <string>

#include "directories.h"

namespace ait {

class AppendFile {
public:
    AppendFile() = default;
    ~AppendFile() { Close(); }
    AppendFile(const AppendFile &) = delete;
    AppendFile &operator=(const AppendFile &) = delete;
    AppendFile(AppendFile &&other) noexcept;

    // Each returns 0 or an errno.
    // `fresh` replaces a file of that name; otherwise lines are added to it.
    int Open(Directories &directories, const std::string &path, bool fresh);
    int Append(const std::string &lines);
    // Replaces everything that was appended so far.
    int Rewrite(const std::string &content);
    int MoveTo(Directories &directories, const std::string &path);
    void Close();

    bool IsOpen() const { return fd_ >= 0; }
    bool IsEmpty() const;
    // True where the file (or the directory around it) was removed by someone else.
    bool Removed() const;
    // Held until the file is closed: tells readers that lines may follow.
    void Lock() const;
    // Keeps disk blocks for lines to come, so that they fit on a disk that fills up meanwhile.
    void Reserve();

private:
    std::string path_;
    int fd_ = -1;
    long long reserved_ = 0;
};

// Appends one line to a file that several processes share; 0 or an errno.
int AppendShared(const std::string &path, const std::string &line);

} // namespace ait

#endif
